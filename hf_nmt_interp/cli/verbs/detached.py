"""Measure whether the source share separates true sentence pairs from pairs with a swapped source.

The model translates every sentence; each translation is then explained with its own source and with another one.
`auroc` is the probability that a true pair scores above a detached one; log-probability is the baseline. This compares
attribution methods; use `check` to find detached translations in your own files.

Examples:
  hf-nmt-interp detached "I like tea." "She has a red car." "We are at home."
"""

import argparse

from hf_nmt_interp.cli.arguments import add_translating, generate_options, read_sentences
from hf_nmt_interp.cli.output import write_rows
from hf_nmt_interp.cli.verbs.attribute import add_method


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_method(parser)
    add_translating(parser)


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.attribution.registry import parse_method_settings

    sentences = read_sentences(args)
    settings = parse_method_settings(args.method, args.set)

    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.studies.detached import detached_study

    model, tokenizer = load_for(args)
    options = {"batch_size": args.batch_size, "generate": generate_options(args)}
    study = detached_study(model, tokenizer, sentences, args.method, **options, **settings)
    rows = [{k: v if isinstance(v, str) else round(v, 4) for k, v in row.items()} for row in study.table()]
    write_rows(rows, args, "Detached sources")
