"""Line-parallel files of any size: windows of lines in, lines out, and going on where a run was cut off."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import open_lines, try_lines

Line = tuple[str, ...] | InputError  # the same line of all files, or what is wrong with it


def read_windows(paths: Sequence[str], size: int, skip: int = 0) -> Iterator[list[Line]]:
    """Windows of `size` lines of what `read_together` gives."""
    lines = read_together(paths, skip)
    while window := list(islice(lines, size)):
        yield window


def read_together(paths: Sequence[str], skip: int = 0) -> Iterator[Line]:
    """The same lines of several files; `-` is stdin.

    A line that cannot be read is given as an error, and so are the lines that shorter files do not have.

    Args:
        paths: the files.
        skip: lines at the beginning to pass over.
    """
    if list(paths).count("-") > 1:
        raise InputError("-: stdin can be one of the files only; give the other by its name")
    with ExitStack() as stack:
        files = [sys.stdin.buffer if path == "-" else stack.enter_context(open_lines(path)) for path in paths]
        skipped = [sum(1 for _ in islice(file, skip)) for file in files]
        if max(skipped) < skip:
            raise InputError(f"--resume: the output has {skip} lines, {paths[0]} only {skipped[0]}; is it another's?")
        names = ["stdin" if path == "-" else path for path in paths]
        columns = [try_lines(file, name, skip + 1) for file, name in zip(files, names, strict=True)]
        for number, parts in enumerate(zip_longest(*columns), skip + 1):
            yield _line(parts, names, number)


def _line(parts: Sequence[str | InputError | None], names: Sequence[str], number: int) -> Line:
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return tuple(texts)
    for part, name in zip(parts, names, strict=True):
        if part is None:
            return MissingLine(f"{name}, line {number}: missing; the files must have the same number of lines")
    return next(part for part in parts if isinstance(part, InputError))


class MissingLine(InputError):
    """A file has fewer lines than another."""


def complete_lines(paths: Sequence[str], window: int, source: str) -> int:
    """How many lines of whole windows all files have, ended by a line break; what goes beyond is cut off.

    Windows that begin where they would have begun make a run that goes on the same as one that was not cut off. If a
    file is missing, all begin anew.

    Args:
        paths: files of the output.
        window: lines that are worked on together.
        source: file of the input; an output with more lines is refused.
    """
    existing = [path for path in paths if os.path.exists(path)]
    count = min(map(_count, existing), default=0)
    if os.path.isfile(source) and count > (there := _count(source) + 1):  # its last line may have no line break
        raise InputError(f"--resume: the output has {count} lines, {source} at most {there}; is it another's?")
    count = count // window * window if existing == list(paths) else 0
    for path in existing:
        with open(path, "rb+") as file:
            size = sum(len(line) for line in islice(file, count))
            if size < os.path.getsize(path):
                text = f"{path}: after line {count} it may be half-written, of a run that was cut off: done again"
                print(text, file=sys.stderr)
            file.truncate(size)
    return count


def _count(path: str) -> int:
    with open_lines(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


@contextmanager
def append_to(path: str | None, keep: bool) -> Iterator[BinaryIO]:
    """Stdout for None; else the file, emptied first unless `keep`."""
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        file = open(path, "ab" if keep else "wb")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    with file:
        yield file


class BadLines:
    """`OUTPUT.bad`: what is wrong with lines that were refused, as JSON lines; there only if there are any.

    Args:
        output: file beside which it stands; None for stdout, and devices have none either.
        done: lines that an earlier run has done; of those, it is kept.
    """

    def __init__(self, output: str | None, done: int) -> None:
        is_file = output is not None and (os.path.isfile(output) or not os.path.exists(output))
        self.path = Path(f"{output}.bad") if is_file else None
        if self.path and self.path.exists():
            kept = self._kept(done) if done else []
            part = Path(f"{self.path}.part")
            part.write_text("".join(kept), encoding="utf-8", newline="\n")
            part.replace(self.path)
            if not kept:
                self.path.unlink()

    def _kept(self, done: int) -> list[str]:
        """Rows of lines that are done; a last one that was cut off is not."""
        assert self.path
        with self.path.open(encoding="utf-8", newline="\n") as file:
            lines = [line for line in file if line.endswith("\n")]
        try:
            return [line for line in lines if json.loads(line)["line"] <= done]
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"--resume: {self.path} has other than refused lines; move it away") from error

    def add(self, row: dict[str, Any]) -> None:
        """Append a row."""
        self._append([json.dumps(row, ensure_ascii=False) + "\n"])

    def _append(self, lines: list[str]) -> None:
        if self.path and lines:
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
