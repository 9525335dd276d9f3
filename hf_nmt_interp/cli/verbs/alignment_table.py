"""Table of alignment error rates: every method, both directions and symmetrised, next to a statistical aligner.

force  sentence pairs with gold links, force decoded by the translators
free   the translators' own translations; the reference links come from a statistical aligner (--statistical)
noise  error rate and entropy of the soft alignment in both kinds of decoding, for the attention of --model, its
       gradient, and SmoothGrad with several noise levels (--sigma)

--as-published computes the tables like the code of the paper's authors: each target subword is linked to its best
source subword, and a word gets the links of its subwords; "Li" rows are the absolute value of gradient times
embedding; entropies are over subwords including EOS; attention of convolutional translators is averaged over layers.
Only the rows of the paper are computed, and written to table-published.md and table-published.jsonl.

--statistical names the aligner: eflomal (pip install -c constraints.txt -e ".[yardstick]"), or stepwise, which is
part of this package. Both are trained on --train plus the gold text; stepwise-online is trained on --train only.
Words of the gold text in the old German spelling with ß are spelt as in --train. Layers and heads of attention are
chosen without gold links, by agreement of the two directions. Without --reverse-model they are chosen by agreement
with deleting source words, and each method gets a row of mutual links (best for both words) instead of symmetrised
ones. Results are saved in FOLDER; run the same command again to resume. table.md and table.jsonl there have the rows
computed so far, and log.txt shows the progress.

Examples:
  hf-nmt-interp alignment-table out --gold gold.txt train.en train.de --table force --method attention
  hf-nmt-interp alignment-table out --reverse-model demo:de-en --gold gold.txt train.en train.de --table force
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hf_nmt_interp.cli.arguments import add_gold, add_model, add_reverse_prefix, positive, read_gold_pairs
from hf_nmt_interp.cli.output import Row, open_output, write_json
from hf_nmt_interp.cli.paths import InputFile, OutputFolder
from hf_nmt_interp.errors import InputError, check_choice

if TYPE_CHECKING:
    from hf_nmt_interp.studies.alignment_table import AlignmentTable

_TABLES = ("force", "free", "noise")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=OutputFolder, metavar="FOLDER", help="folder for the results")
    add_gold(parser)
    parser.add_argument("--train", nargs=2, type=InputFile, metavar=("SOURCE", "TARGET"), help="the training text")
    add_model(parser)
    help = "translator of the other direction (default: a table of one direction)"
    parser.add_argument("--reverse-model", metavar="NAME", help=help)
    add_reverse_prefix(parser)
    group = parser.add_argument_group("table")
    group.add_argument("--table", nargs="+", choices=_TABLES, help="default: all; free only with --statistical")
    group.add_argument(
        "--method", action="append", metavar="NAME", help="row of the table; may be repeated (default: all)"
    )
    names = ("eflomal", "stepwise", "stepwise-online")
    group.add_argument("--statistical", choices=names, help="statistical aligner to compare with")
    group.add_argument("--eflomal", action="store_true", help="the same as --statistical eflomal")
    group.add_argument("--as-published", action="store_true", help="compute as the paper's authors do, see above")
    group.add_argument(
        "--sigma", nargs="+", type=float, default=[0, 0.05, 0.15, 0.3], metavar="S", help="noise levels"
    )
    group.add_argument("--limit", type=positive, metavar="N", help="use only the first N pairs, for a quick try")
    group.add_argument("--batch-size", type=positive, default=16, metavar="N", help="default: %(default)s")


def run(args: argparse.Namespace) -> None:
    """Compute row by row, and rewrite the tables after each row."""
    from hf_nmt_interp.report.alignment import alignment_markdown
    from hf_nmt_interp.studies.alignment_table import PUBLISHED, ROWS

    for name in args.method or ():
        check_choice("--method", name, PUBLISHED if args.as_published else ROWS)
    if args.eflomal and args.statistical not in (None, "eflomal"):
        raise InputError("--eflomal", None, f"--statistical names {args.statistical}", "give only one of them")
    args.statistical = "eflomal" if args.eflomal else args.statistical
    if args.statistical and not args.train:
        option = "--eflomal" if args.eflomal else "--statistical"
        raise InputError(option, None, "needs the text to train on", "give --train")
    if "free" in (args.table or ()) and not args.statistical:
        problem = "free decoding is compared with a statistical aligner"
        raise InputError("--table", None, problem, "give --statistical")
    name, rows = "table-published" if args.as_published else "table", []
    table = Path(args.folder, name)
    for row in _rows(args, *_table(args)):
        rows.append(row)
        with open_output(f"{table}.jsonl") as file:
            write_json(rows, file)
        with open_output(f"{table}.md") as file:
            file.write(alignment_markdown(rows))
    print(alignment_markdown(rows), end="")


def _table(args: argparse.Namespace) -> "tuple[AlignmentTable, list[tuple[str, str]]]":
    """The table, and the gold sentence pairs beyond its limit."""
    from hf_nmt_interp.cli.loading import load, load_for
    from hf_nmt_interp.studies.alignment_table import AlignmentTable
    from hf_nmt_interp.text.corpus import read_lines
    from hf_nmt_interp.text.spelling import new_spelling

    pairs, gold = read_gold_pairs(args)
    if args.train:
        sides = zip(*pairs, strict=True)
        texts = [new_spelling(side, read_lines(path)) for side, path in zip(sides, args.train, strict=True)]
        pairs = list(zip(*texts, strict=True))
    back = args.target_lang, args.source_lang, args.reverse_source_prefix, args.dtype
    models = load_for(args), load(args.reverse_model, args.device, *back) if args.reverse_model else None
    limit = args.limit or len(pairs)
    log = Path(args.folder, "log.txt")
    start = time.monotonic()

    def say(line: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{time.monotonic() - start:6.0f} s  {line}\n")

    shown = gold[0][:limit], gold[1][:limit]
    more = {"as_published": args.as_published, "statistical": args.statistical or "eflomal"}
    return AlignmentTable(*models, pairs[:limit], shown, args.folder, args.batch_size, say, **more), pairs[limit:]


def _rows(args: argparse.Namespace, table: "AlignmentTable", others: list[tuple[str, str]]) -> Iterator[Row]:
    wanted = args.table or [name for name in _TABLES if name != "free" or args.statistical]
    source, target = map(Path, args.train or ("", ""))
    names = args.method or table.rows()
    if "force" in wanted:
        if args.statistical:
            yield from table.yardstick((source, target), others)
        yield from table.force(names)
    if "free" in wanted:
        yield from table.free((source, target), names)
    if "noise" in wanted:
        yield from table.noise(args.sigma, (source, target) if args.statistical else None)
