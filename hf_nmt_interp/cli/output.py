"""Where results go: stdout or a file, rows in four formats, a progress bar on stderr."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from itertools import chain
from typing import Any, TextIO, TypeVar

from hf_nmt_interp.cli.arguments import chosen_format
from hf_nmt_interp.text.files import atomic

Row = dict[str, Any]
T = TypeVar("T")
C = TypeVar("C", bound=Sized)


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Stdout for None; else a file that appears under its name only when it is complete."""
    if path is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 still shows the rest
        yield sys.stdout
        return
    with atomic(path, shared=True) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        yield file


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
            texts = ("" if value is None else str(value) for value in row.values())
            file.write("\t".join(" ".join(text.splitlines()).replace("\t", " ") for text in texts) + "\n")


def in_chunks(items: Sequence[T], size: int, label: str, streams: bool) -> Iterator[Sequence[T]]:
    """Consecutive parts of a list, with a progress bar unless results stream to a terminal."""
    chunks = [items[start : start + size] for start in range(0, len(items), size)]
    return show_progress(chunks, label, hidden=streams and sys.stdout.isatty())


def show_progress(chunks: Sequence[Any], label: str, hidden: bool = False) -> Iterator[Any]:
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


def track_items(items: Iterable[T], label: str) -> Iterator[T]:
    """The items, with a progress bar that counts them."""
    return (item for (item,) in show_progress([[item] for item in items], label))


def rounded(value: float | None) -> float | None:
    """Four digits; None for NaN, which JSON does not have."""
    return None if value is None or value != value else round(float(value), 4)
