"""Compare all methods in one table: faithfulness, alignment error rate, seconds and memory.

compr       comprehensiveness: mean loss of probability without the top 10 to 50 % of the source words (high is good)
suff        sufficiency: mean loss with only those words (low is good)
aer         alignment error rate in % on the gold pairs (low is good)
c_ci, s_ci  half the 95 % confidence interval of the difference from the row above
a_ci        half the 95 % confidence interval of aer, over bootstrap samples of the pairs
sec         processor time per gold pair, in batches
MB          peak memory, minus what was in use before
The row `align` is what `align` uses without --method.

Examples:
  hf-nmt-interp compare-methods --method lrp --method alti --gold gold.txt train.en train.de "I like tea."
  hf-nmt-interp compare-methods --input train.en --limit 2 --pairs 1 --gold gold.txt train.en train.de --format json
"""

import argparse

from hf_nmt_interp.cli.arguments import (
    add_gold,
    add_translating,
    generate_options,
    positive,
    read_gold_pairs,
    read_sentences,
)
from hf_nmt_interp.cli.output import rounded, write_rows
from hf_nmt_interp.cli.paths import OutputFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help = "may be repeated (default: all that support the model)"
    parser.add_argument("--method", action="append", metavar="NAME[:SETTING=VALUE,...]", help=help)
    add_gold(parser)
    help = "save the results of each method there; run the same command again to resume"
    parser.add_argument("--folder", type=OutputFolder, metavar="FOLDER", help=help)
    parser.add_argument("--pairs", type=positive, metavar="N", help="use only the first N gold pairs")
    add_translating(parser)


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.attribution.registry import parse_method

    asked = {text: parse_method(text) for text in args.method or ()}
    sources, (pairs, gold) = read_sentences(args), read_gold_pairs(args)

    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.studies.methods_compared import compare_methods

    sides = [[text.split() for text in side][: args.pairs] for side in zip(*pairs, strict=True)]
    some = sides[0], sides[1], gold[0][: args.pairs], gold[1][: args.pairs]
    more = {"generate": generate_options(args), "folder": args.folder}
    rows = compare_methods(*load_for(args), sources, some, asked or None, args.batch_size, **more)
    numbers = [{key: v if isinstance(v, str) else rounded(v) for key, v in row.items()} for row in rows]
    write_rows(numbers, args, "Methods compared")
