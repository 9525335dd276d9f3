"""Compare methods by erasure: how much a translated word loses when the source words ranked first are taken away.

comprehensiveness  mean loss of probability without the best 10 to 50 % of the source words; higher is better
sufficiency        mean loss with only those words left; lower is better
`random` ranks the source words at random.

Examples:
  hf-nmt-interp faithfulness --method lrp --method attention "I like tea." "She has a red car." "We are at home."
"""

import argparse

from hf_nmt_interp.cli.arguments import (
    add_decoding,
    add_model,
    add_output,
    add_sentences,
    generate_options,
    read_sentences,
)
from hf_nmt_interp.cli.output import Row, write_rows
from hf_nmt_interp.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sentences, methods, model, decoding and output."""
    add_sentences(parser)
    parser.add_argument(
        "--method", action="append", metavar="NAME", help="may be repeated (default: all of attribute --list-methods)"
    )
    add_model(parser)
    add_decoding(parser, batch_size=16)
    add_output(parser)


def run(args: argparse.Namespace) -> None:
    """Explain by each method, erase, and write a table."""
    from hf_nmt_interp.attribution import METHODS

    for name in args.method or ():
        if name not in METHODS:
            raise InputError(f"--method: {name!r} is not one of {', '.join(METHODS)}")
    sentences = read_sentences(args)

    from hf_nmt_interp.attribution.api import attribute
    from hf_nmt_interp.cli.loading import check_lengths, load
    from hf_nmt_interp.metrics.faithfulness import faithfulness, random_scores

    model, tokenizer = load(args.model, args.device, args.source_lang, args.target_lang)
    check_lengths(model, tokenizer, sentences)
    rows: list[Row] = []
    for name in args.method or METHODS:
        results = attribute(
            model, tokenizer, sentences, None, name, batch_size=args.batch_size, generate=generate_options(args)
        )
        rows.append({"method": name} | _rounded(faithfulness(model, results).area))
    rows.append({"method": "random"} | _rounded(faithfulness(model, results, scores=random_scores()).area))
    write_rows(sorted(rows, key=lambda row: -row["comprehensiveness"]), args, "Faithfulness")


def _rounded(areas: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in areas.items()}
