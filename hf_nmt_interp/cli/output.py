"""Writes results to stdout or a file, with rows in four formats."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TextIO, TypeVar

from hf_nmt_interp.cli.arguments import chosen_format
from hf_nmt_interp.text.files import atomic
from hf_nmt_interp.text.progress import track
from hf_nmt_interp.text.tables import safe_cell

Row = dict[str, Any]
T = TypeVar("T")


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Stdout for None, otherwise a file that gets its name only when it is complete."""
    if path is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 still shows the rest
        yield sys.stdout
        return
    with atomic(path, shared=True) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def write_rows(rows: Iterable[Row], args: argparse.Namespace, title: str) -> None:
    """Write rows with the same fields in the requested format: JSON lines, TSV with a header, a table or a page."""
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
    """One JSON object per line."""
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def write_tsv(rows: Iterable[Row], file: TextIO) -> None:
    """Write a header, then one line per row; tabs and line breaks become spaces, for formulas see `safe_cell`."""
    rows = iter(rows)
    for first in rows:
        file.write("\t".join(first) + "\n")
        for row in chain([first], rows):
            texts = ("" if value is None else str(safe_cell(value)) for value in row.values())
            file.write("\t".join(" ".join(text.splitlines()).replace("\t", " ") for text in texts) + "\n")


def in_chunks(items: Sequence[T], size: int, label: str, streams: bool) -> Iterable[Sequence[T]]:
    """Consecutive parts of a list, with a progress bar if there are several and they do not stream to a terminal."""
    chunks = [items[start : start + size] for start in range(0, len(items), size)]
    return chunks if len(chunks) < 2 or (streams and sys.stdout.isatty()) else track(chunks, label)


def rounded(value: float | None) -> float | None:
    """A number with four digits; None for NaN, which JSON does not have."""
    return None if value is None or value != value else round(float(value), 4)
