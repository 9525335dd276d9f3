"""Compare methods by erasure: how much probability a target word loses without the source words ranked first.

comprehensiveness  mean loss of probability without the top 10 to 50 % of the source words; higher is better
sufficiency        mean loss with only those words; lower is better
c_margin, s_margin half the 95 % confidence interval of the difference from the row above, paired by
                   sentence: a smaller difference may be chance
`random` ranks the source words at random. All methods explain the same translations.

Examples:
  hf-nmt-interp faithfulness --method lrp --method attention "I like tea." "She has a red car." "We are at home."
  hf-nmt-interp faithfulness --method smoothgrad:smoothgrad=10 --method attention:layer=0,head=1 "I like tea."
"""

import argparse

from hf_nmt_interp.cli.arguments import add_translating, generate_options, read_sentences
from hf_nmt_interp.cli.output import rounded, write_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help = "may be repeated (default: all that support the model, with default settings)"
    parser.add_argument("--method", action="append", metavar="NAME[:SETTING=VALUE,...]", help=help)
    add_translating(parser)


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.attribution import METHODS
    from hf_nmt_interp.attribution.registry import parse_method

    asked = {text: parse_method(text) for text in args.method or METHODS}
    sentences = read_sentences(args)

    from hf_nmt_interp.attribution.registry import make_method, word_settings
    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.metrics.faithfulness import compare, ranked_rows

    model, tokenizer = load_for(args)
    fitting = {text: of for text, of in asked.items() if args.method or METHODS[of[0]].fits(model)}
    methods = {text: make_method(model, name, **word_settings(name, own)) for text, (name, own) in fitting.items()}
    found = compare(model, tokenizer, sentences, methods, args.batch_size, generate_options(args))
    rows = [{key: v if isinstance(v, str) else rounded(v) for key, v in row.items()} for row in ranked_rows(found)]
    write_rows(rows, args, "Faithfulness")
