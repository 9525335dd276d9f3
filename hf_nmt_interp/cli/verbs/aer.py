"""Alignment error rate, precision and recall of word alignments against gold links.

Both files have one line per sentence pair, with links `source-target`; in GOLD `ipj` or `i?j` is a possible link.
aer_ci is half the 95 % confidence interval of the error rate, over bootstrap samples of the pairs. --figure draws some
pairs as matrices that show found and gold links, with the words of --text.

Examples:
  hf-nmt-interp aer gold.txt links.txt
  hf-nmt-interp aer --gold-base 1 --format json gold1.txt links.txt
  hf-nmt-interp aer --text train.en train.de gold.txt links.txt
  hf-nmt-interp aer gold.txt links.txt --figure pairs.svg --text train.en train.de --pairs 1 2
"""

import argparse

from hf_nmt_interp.cli.arguments import add_figure, add_output, positive
from hf_nmt_interp.cli.output import write_rows
from hf_nmt_interp.cli.paths import InputFile
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.aer.rate import alignment_error_rate, error_margin
from hf_nmt_interp.text.corpus import Pair, read_parallel
from hf_nmt_interp.text.pharaoh import Links, read_gold


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gold", type=InputFile, metavar="GOLD", help="file of gold links")
    parser.add_argument("hypothesis", type=InputFile, metavar="HYP", help="file of links to evaluate")
    for flag, what in (("--gold-base", "GOLD"), ("--base", "HYP")):
        parser.add_argument(
            flag, type=int, choices=(0, 1), default=0, help=f"number of the first word in {what} (default: 0)"
        )
    add_output(parser, ("table", "json", "tsv"))
    add_figure(parser, "pairs")
    parser.add_argument("--text", nargs=2, type=InputFile, metavar=("SOURCE", "TARGET"), help="files of the sentences")
    parser.add_argument("--pairs", nargs="+", type=positive, metavar="N", help="lines to draw (default: the first 3)")


def run(args: argparse.Namespace) -> None:
    pairs = list(read_parallel(*args.text)) if args.text else None
    sure, possible = read_gold(args.gold, args.gold_base, pairs)
    links = read_gold(args.hypothesis, args.base, pairs)[1]
    if not sure:
        raise InputError(args.gold, None, "no lines", "give a line of links for each sentence pair")
    if len(links) != len(sure):
        raise InputError(args.hypothesis, len(links), f"lines, but {args.gold} has {len(sure)}")
    if args.figure:
        _draw(args, pairs, links, sure, possible)
    rates: dict[str, float | None] = dict(alignment_error_rate(links, sure, possible))
    rates = {"aer": rates.pop("aer"), "aer_ci": error_margin(links, sure, possible)} | rates
    rounded = {name: None if rate is None else round(rate, 6) for name, rate in rates.items()}
    counts = {"sentences": len(links), "links": sum(map(len, links)), "sure": sum(map(len, sure))}
    write_rows([rounded | counts], args, title="Alignment error rate")


def _draw(args: argparse.Namespace, pairs: list[Pair] | None, links: list[Links], *gold: list[Links]) -> None:
    import numpy as np

    from hf_nmt_interp.analysis.alignment import WordAlignment
    from hf_nmt_interp.report.alignment import plot_alignment

    if pairs is None:
        raise InputError("--figure", None, "needs the words of the sentences", "give --text SOURCE TARGET")
    chosen = [number - 1 for number in args.pairs or range(1, min(3, len(links)) + 1)]
    if wrong_pairs := [number + 1 for number in chosen if number >= len(links)]:
        raise InputError("--pairs", None, f"line {wrong_pairs[0]} is out of range", f"{args.gold} has {len(links)}")
    found = []
    for n in chosen:
        source, target = (text.split() for text in pairs[n])
        found.append(WordAlignment(source, target, pairs[n][1], np.zeros((len(target), len(source))), links[n]))
    plot_alignment(found, args.figure, *([side[n] for n in chosen] for side in gold))
