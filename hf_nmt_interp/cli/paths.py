"""Types of arguments that name files and folders; outputs are checked before the work starts."""

import argparse
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.files import is_device


class InputFile(str):
    """A file that is read."""


class OutputFile(str):
    """A file that is written."""

    is_folder = False
    may_share = False  # whether its side file may also be an output, because it has the same content

    def beside(self) -> list[str]:
        """Other files that are written with it."""
        return []

    def problem(self) -> str | None:
        """Why it cannot be written."""
        for path in [self, *self.beside()]:
            try:
                found = _error_number(Path(os.path.realpath(path)), self.is_folder)
            except OSError as error:  # e.g. a name that is too long
                found = error.errno
            if found:
                return f"{path}: {os.strerror(found)}"
        return None


class OutputFolder(OutputFile):
    """A folder that is written to, and created if needed."""

    is_folder = True


class OutputLines(OutputFile):
    """A file of lines; skipped ones are listed in FILE.bad."""

    def beside(self) -> list[str]:
        """The list; devices have none."""
        return [] if is_device(Path(os.path.realpath(self))) else [f"{self}.bad"]


class Figure(OutputFile):
    """A figure, with its numbers in a CSV file."""

    endings = ".svg", ".pdf", ".png"
    may_share = True  # heads.csv

    def beside(self) -> list[str]:
        """The numbers."""
        path = Path(self)
        return [str(path.with_suffix(".csv"))] if path.suffix in self.endings else []

    def problem(self) -> str | None:
        """Why it cannot be written."""
        *endings, last = self.endings
        wrong = f"{self}: its name must end in {', '.join(endings)} or {last}"
        return super().problem() or (None if self.beside() else wrong)


def check_outputs(args: argparse.Namespace) -> None:
    """Raise for outputs that cannot be written, and for files that another argument also names."""
    for name, path in given(args):
        if not isinstance(path, OutputFile):
            continue
        if problem := path.problem():
            raise InputError(args.flags[name], None, problem)
        if path.is_folder or is_device(Path(os.path.realpath(path))):
            continue
        others = [other for at, other in given(args) if at != name]
        for file in [path, *path.beside()]:
            taken: list[str] = list(others)
            if file is not path:
                taken = [other for other in others if not (path.may_share and type(other) is OutputFile)]
                taken += [side for other in others if isinstance(other, OutputFile) for side in other.beside()]
            if os.path.realpath(file) in map(os.path.realpath, taken):
                problem = f"{file} is also used by another argument"
                raise InputError(args.flags[name], None, problem, "give each its own file")


def check_new_folder(argument: str, path: str) -> None:
    """Raise for a folder that is not empty."""
    if Path(path).exists() and any(Path(path).iterdir()):
        raise InputError(argument, str(path), "exists and is not empty", "name a new folder")


def given(args: argparse.Namespace) -> Iterator[tuple[str, InputFile | OutputFile]]:
    """Names of arguments, and the paths given for them."""
    for name, value in vars(args).items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, InputFile | OutputFile):
                yield name, path


def _error_number(place: Path, is_folder: bool) -> int | None:
    """Number of the error that writing there would cause."""
    folder = place if is_folder else place.parent
    while is_folder and not folder.exists():
        folder = folder.parent
    problems = {
        errno.EISDIR: place.is_dir() and not is_folder,
        errno.ENOENT: not folder.exists(),
        errno.ENOTDIR: not folder.is_dir(),
        errno.EACCES: not (is_device(place) or os.access(folder, os.W_OK | os.X_OK)),
    }
    return next((number for number, is_so in problems.items() if is_so), None)
