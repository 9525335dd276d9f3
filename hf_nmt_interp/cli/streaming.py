"""Line-parallel files of any size: windows of lines in, lines out, and how `align --output` is resumed."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from hf_nmt_interp.cli.paths import OutputLines
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import LineError, open_lines, try_lines
from hf_nmt_interp.text.files import write_whole

Line = tuple[str, ...] | InputError  # the same line of all files, or what is wrong with it


def read_together(paths: Sequence[str], skip: int = 0) -> Iterator[Line]:
    """The same lines of several files; `-` is stdin.

    A line that cannot be read is given as an error, and so are the lines that shorter files do not have.

    Args:
        paths: the files.
        skip: lines at the beginning to pass over.
    """
    if list(paths).count("-") > 1:
        raise InputError("-", None, "stdin can be one of the files only", "give the other by its name")
    with ExitStack() as stack:
        files = [sys.stdin.buffer if path == "-" else stack.enter_context(open_lines(path)) for path in paths]
        skipped = [sum(1 for _ in islice(file, skip)) for file in files]
        if max(skipped) < skip:
            raise InputError("--resume", None, f"the output has {skip} lines, {paths[0]} only {skipped[0]}")
        names = ["stdin" if path == "-" else path for path in paths]
        columns = [try_lines(file, name, skip + 1) for file, name in zip(files, names, strict=True)]
        for number, parts in enumerate(zip_longest(*columns), skip + 1):
            yield _line(parts, names, number)


def _line(parts: Sequence[str | InputError | None], names: Sequence[str], number: int) -> Line:
    if None in parts:
        where = f"{names[parts.index(None)]}, line {number}"
        return MissingLine(where, None, "missing", "the files must have the same number of lines")
    errors = [part for part in parts if isinstance(part, InputError)]
    return errors[0] if errors else tuple(part for part in parts if isinstance(part, str))


class MissingLine(LineError):
    """A file has fewer lines than another."""


def complete_lines(paths: Sequence[str], window: int, source: str) -> int:
    """How many lines of whole windows all files have, ended by a line break; what follows is cut off.

    A resumed run starts with a whole window, so its results are the same. If a file is missing, all start again.

    Args:
        paths: files of the output.
        window: lines that are worked on together.
        source: file of the input; an output with more lines is refused.
    """
    existing = [path for path in paths if os.path.exists(path)]
    count = min(map(_count, existing), default=0)
    if os.path.isfile(source) and count > (there := _count(source) + 1):  # its last line may have no line break
        raise InputError("--resume", None, f"the output has {count} lines, {source} at most {there}")
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


def append_to(path: str | None, keep: bool) -> AbstractContextManager[BinaryIO]:
    """Stdout for None; else the file, emptied first unless `keep`."""
    return nullcontext(sys.stdout.buffer) if path is None else open(path, "ab" if keep else "wb")


class BadLines:
    """`OUTPUT.bad`: refused lines and the reasons, as JSON lines; it exists only if there are any.

    Args:
        output: file beside which it stands; None for stdout.
        done: lines that an earlier run has done; their rows are kept.
    """

    def __init__(self, output: OutputLines | None, done: int) -> None:
        self.path = next(map(Path, output.beside()), None) if output else None
        if not self.path or not self.path.exists():
            return
        with self.path.open(encoding="utf-8", newline="\n") as file:
            lines = [line for line in file if line.endswith("\n")]  # the last one may be incomplete
        try:
            kept = [line for line in lines if json.loads(line)["line"] <= done] if done else []
        except (ValueError, TypeError, KeyError) as error:
            raise InputError("--resume", None, f"{self.path} is not a list of refused lines; move it away") from error
        if kept:
            write_whole(self.path, "".join(kept))
        else:
            self.path.unlink()

    def add(self, row: dict[str, Any]) -> None:
        """Append a row."""
        if self.path:
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
