"""Where results go: stdout or a file, rows in four formats, a progress bar on stderr."""

import argparse
import errno
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, TypeVar

from hf_nmt_interp.cli.arguments import chosen_format
from hf_nmt_interp.errors import InputError

Row = dict[str, Any]
T = TypeVar("T")
C = TypeVar("C", bound=Sized)


# arguments that name what is written, and whether it is a folder
_WRITTEN = {
    "output": False, "translations": False, "figure": False, "gates": False,
    "figures": True, "folder": True, "save": True, "shards": True,
}  # fmt: skip
_READ = (
    "input", "target_file", "source", "target", "gold", "hypothesis", "text", "train", "corpus", "trees", "heads",
    "before", "dataset",
)  # fmt: skip
_DRAWN = ".svg", ".pdf", ".png"


def check_outputs(args: argparse.Namespace) -> None:
    """Before any work: files that will be written have a folder and are not read, folders can be made."""
    for name, is_folder in _WRITTEN.items():
        if (path := getattr(args, name, None)) is None:
            continue
        shown = "FOLDER" if name == "folder" else f"--{name}"
        place = Path(os.path.realpath(path))
        try:
            found = _problem(place, is_folder)
        except OSError as error:  # e.g. a name that is too long
            found = error.errno
        if found:
            raise InputError(f"{shown}: {path}: {os.strerror(found)}")
        if name in ("figure", "gates") and Path(path).suffix not in _DRAWN:
            raise InputError(f"{shown}: {path}: its name must end in {', '.join(_DRAWN[:-1])} or {_DRAWN[-1]}")
        if not is_folder and not _is_device(place) and str(place) in _others(args, name):
            raise InputError(f"{shown}: {path} is also the file of another argument; give each its own")


def check_new_folder(argument: str, path: str) -> None:
    """Refuse a folder that has something in it already; `check_outputs` has refused what is no folder."""
    if Path(path).exists() and any(Path(path).iterdir()):
        raise InputError(f"{argument}: {path!r} exists and is not empty; name a new folder")


def _problem(place: Path, is_folder: bool) -> int | None:
    """Number of the error that writing there would end in."""
    folder = place if is_folder else place.parent
    is_device = not is_folder and _is_device(place)
    while is_folder and not folder.exists():
        folder = folder.parent
    problems = {
        errno.EISDIR: place.is_dir() and not is_folder,
        errno.ENOENT: not folder.exists(),
        errno.ENOTDIR: not folder.is_dir(),
        errno.EACCES: not (is_device or os.access(folder, os.W_OK | os.X_OK)),
    }
    return next((number for number, is_so in problems.items() if is_so), None)


def _is_device(place: Path) -> bool:
    return place.exists() and not place.is_file()


def _others(args: argparse.Namespace, name: str) -> set[str]:
    """Files that other arguments name, to be read or written."""
    values = [getattr(args, other, None) for other in (*_READ, *_WRITTEN) if other != name]
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    return {os.path.realpath(text) for text in texts if isinstance(text, str)}


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Stdout for None; else a file that appears under its name only when it is complete."""
    if path is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 still shows the rest
        yield sys.stdout
        return
    place = Path(os.path.realpath(path))
    is_device = _is_device(place)  # /dev/null must not be replaced by a file
    part = place if is_device else place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        file = part.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"--output: {path}: {error.strerror}") from error
    try:
        with file:
            yield file
        if not is_device:
            part.replace(place)
    finally:
        if not is_device:
            part.unlink(missing_ok=True)


def write_rows(rows: Iterable[Row], args: argparse.Namespace, title: str) -> None:
    """Write rows of the same fields in the format asked for: JSON lines, TSV with a header, a table, a page."""
    kind = chosen_format(args)
    with open_output(args.output) as file:
        if kind == "json":
            write_json(rows, file)
        elif kind == "tsv":
            write_tsv(rows, file)
        elif kind == "html":
            from hf_nmt_interp.report.html import render_table

            file.write(render_table(list(rows), title))
        else:
            from rich.console import Console

            from hf_nmt_interp.report.terminal import table

            Console(file=file).print(table(list(rows)))


def write_json(rows: Iterable[Row], file: TextIO) -> None:
    """One JSON object a line."""
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def write_tsv(rows: Iterable[Row], file: TextIO) -> None:
    """A header line, then one row a line; tabs and line breaks in text become spaces."""
    rows = iter(rows)
    for first in rows:
        file.write("\t".join(first) + "\n")
        for row in chain([first], rows):
            file.write("\t".join(map(_field, row.values())) + "\n")


def _field(value: Any) -> str:
    """Text without tabs and line breaks; nothing for None."""
    return "" if value is None else " ".join(str(value).splitlines()).replace("\t", " ")


def in_chunks(items: Sequence[T], size: int, label: str, streams: bool) -> Iterator[Sequence[T]]:
    """Consecutive parts of a list, with a progress bar on stderr.

    Args:
        items: what to cut.
        size: of a part.
        label: of the bar.
        streams: whether each part's results are written to stdout at once; on a terminal they need no bar then.
    """
    chunks = [items[start : start + size] for start in range(0, len(items), size)]
    return show_progress(chunks, label, hidden=streams and sys.stdout.isatty())


def show_progress(chunks: Sequence[C], label: str, hidden: bool = False) -> Iterator[C]:
    """The parts of a list as they are, with a progress bar on stderr if that is a terminal and there are several."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    hidden = hidden or not console.is_terminal or len(chunks) < 2
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    # stdout is the verb's own: rich would send it to stderr
    with Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=False) as bar:
        task = bar.add_task(label, total=sum(map(len, chunks)))
        for chunk in chunks:
            yield chunk
            bar.advance(task, len(chunk))
