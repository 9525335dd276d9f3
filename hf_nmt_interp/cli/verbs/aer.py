"""Alignment error rate, precision and recall of word alignments against gold links.

Both files have one sentence pair a line: links `source-target`; in GOLD `ipj` or `i?j` is a possible link.

Examples:
  hf-nmt-interp aer gold.txt links.txt
  hf-nmt-interp aer --gold-base 1 --format json gold1.txt links.txt
"""

import argparse

from hf_nmt_interp.cli.arguments import add_output
from hf_nmt_interp.cli.output import write_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two files and what they count from."""
    parser.add_argument("gold", metavar="GOLD", help="file of gold links")
    parser.add_argument("hypothesis", metavar="HYP", help="file of links to evaluate")
    for flag, what in (("--gold-base", "GOLD counts"), ("--base", "HYP counts")):
        parser.add_argument(flag, type=int, choices=(0, 1), default=0, help=f"what {what} words from (default: 0)")
    add_output(parser, ("table", "json", "tsv"))


def run(args: argparse.Namespace) -> None:
    """Count and write."""
    from hf_nmt_interp.errors import InputError
    from hf_nmt_interp.metrics.aer.rate import alignment_error_rate
    from hf_nmt_interp.text.pharaoh import read_gold, read_links

    sure, possible = read_gold(args.gold, args.gold_base)
    links = read_links(args.hypothesis, args.base)
    if len(links) != len(sure):
        raise InputError(f"{args.hypothesis}: {len(links)} lines, but {args.gold} has {len(sure)}")
    rates = alignment_error_rate(links, sure, possible)
    counts = {"sentences": len(links), "links": sum(map(len, links)), "sure": sum(map(len, sure))}
    write_rows([{name: round(rate, 6) for name, rate in rates.items()} | counts], args, title="Alignment error rate")
