"""Join the shards of a corpus run, which attribute, align, heads or contributions wrote with --shards.

attribute, align  one file with all rows in the order of the input: json (JSON lines) or parquet; for align also
                  pharaoh, a line of links for each line
heads             the report of all sentences: table, json or csv
contributions     means over all sentences, of those with so many tokens if asked for: table, json, tsv or html
All shards must be there. Rows of lines that were refused are empty; which ones and why is in the folder `bad`.

Examples:
  hf-nmt-interp merge runs/links --output train.links
  hf-nmt-interp merge runs/attention --output attention.jsonl
  hf-nmt-interp merge runs/shares --source-tokens 12 --target-tokens 12
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

from hf_nmt_interp.cli.arguments import add_output, chosen_format, positive
from hf_nmt_interp.cli.output import open_output, write_json, write_rows
from hf_nmt_interp.cli.shards import Row, ShardFolder, reading
from hf_nmt_interp.errors import InputError

# verb -> formats, the first is the default
MERGED_FORMATS = {
    "attribute": ("json", "parquet"),
    "align": ("pharaoh", "json", "parquet"),
    "heads": ("table", "json", "csv"),
    "contributions": ("table", "json", "tsv", "html"),
}
_SIZES = ("source_tokens", "target_tokens")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Folder, lengths and output."""
    parser.add_argument("finished", metavar="FOLDER", help="what --shards named")
    parser.add_argument("--source-tokens", type=positive, metavar="N", help="contributions: sources of N tokens only")
    parser.add_argument("--target-tokens", type=positive, metavar="N", help="likewise translations")
    add_output(parser, tuple(dict.fromkeys(kind for kinds in MERGED_FORMATS.values() for kind in kinds)))


def run(args: argparse.Namespace) -> None:
    """Join and write."""
    folder = ShardFolder(args.finished)
    if (verb := str(folder.about.get("verb"))) not in MERGED_FORMATS:
        raise InputError(f"{args.finished}: its run.json is of the verb {verb!r}, not of {', '.join(MERGED_FORMATS)}")
    folder.complete()  # before anything is written
    if args.format and args.format not in MERGED_FORMATS[verb]:
        raise InputError(f"--format: {args.format!r} is not for {verb}; it has {', '.join(MERGED_FORMATS[verb])}")
    args.formats = MERGED_FORMATS[verb]
    if verb != "contributions" and (args.source_tokens or args.target_tokens):
        raise InputError(f"--source-tokens, --target-tokens: choose among rows of contributions, these are of {verb}")
    if refused := folder.refused():
        print(f"{refused:,} lines were refused, see {folder.folder / 'bad'}", file=sys.stderr)
    rows = folder.rows()
    if verb == "contributions":
        _contributions(rows, args)
    elif verb == "heads":
        _heads(rows, args, folder.about["model"])
    else:
        _rows(rows, args, folder)


def _rows(rows: Iterator[Row], args: argparse.Namespace, folder: ShardFolder) -> None:
    kind = chosen_format(args)
    if kind == "parquet":
        _parquet(args, folder)
        return
    with open_output(args.output) as file:
        if kind == "json":
            write_json(rows, file)
            return
        from hf_nmt_interp.text.pharaoh import format_links

        for row in rows:
            file.write(format_links({(i, j) for i, j in row.get("links") or ()}) + "\n")


def _parquet(args: argparse.Namespace, folder: ShardFolder) -> None:
    """One Parquet file of Parquet shards, some rows at a time."""
    from pathlib import Path

    from hf_nmt_interp.cli.shards import Parquet, written

    if not args.output:
        raise InputError("--format: parquet is no text; give --output FILE")
    if folder.about["shard_format"] != "parquet":
        raise InputError("--format: these shards are JSON lines; run with --shard-format parquet for Parquet")
    batches = _batches(folder)
    if (first := next(batches, None)) is None:
        raise InputError(f"{args.finished}: no shards, as the input had no lines; there is nothing to join")
    with written(Path(args.output), Parquet, first.schema) as writer:
        for batch in chain([first], batches):
            writer.file.write_batch(batch)  # type: ignore[attr-defined]


def _batches(folder: ShardFolder) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    for number, path in enumerate(folder.complete()):
        with reading(path), ParquetFile(path) as file:
            folder.check_size(number, file.metadata.num_rows)
            yield from file.iter_batches(batch_size=256)


def _heads(rows: Iterator[Row], args: argparse.Namespace, model: str) -> None:
    from hf_nmt_interp.analysis.heads import report_of
    from hf_nmt_interp.cli.verbs.heads import write_report

    write_report(report_of((row for row in rows if row.get("heads")), {"model": model}), args)


def _contributions(rows: Iterator[Row], args: argparse.Namespace) -> None:
    import numpy as np

    from hf_nmt_interp.analysis.contributions import STATISTICS, RunningCurve
    from hf_nmt_interp.cli.verbs.contributions import curve_rows

    curves: dict[str, RunningCurve] = {}
    for row in rows:
        if row.get("source_tokens") and all(getattr(args, side) in (None, row[side]) for side in _SIZES):
            for name in STATISTICS:
                if name in row:
                    curves.setdefault(name, RunningCurve()).add(np.array(row[name], dtype=float))  # None becomes NaN
    if not curves:
        raise InputError(f"{args.finished}: no sentence is left; it has none of these lengths, or all were refused")
    write_rows(curve_rows({name: curve.curve() for name, curve in curves.items()}), args, "Contributions")
