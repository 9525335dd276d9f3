"""Source share, entropies and position influence by target position, over many sentences.

For each position the mean over the sentences that reach it, with a 95 % confidence interval. The papers take
sentences of one length: --source-tokens and --target-tokens keep those.

source_contribution  share of the source in what was contributed to the step
source_entropy       how spread the source contributions are (nats)
prefix_entropy       how spread the prefix contributions are (nats)
position_influence   influence of the source position on the whole translation, 1 on average

Examples:
  hf-nmt-interp contributions "I like tea." "She has a red car." "We are at home."
  hf-nmt-interp contributions --statistic source_contribution --format tsv "I like tea." "We are at home."
"""

import argparse

from hf_nmt_interp.cli.arguments import add_translating, positive
from hf_nmt_interp.cli.output import Row, write_rows
from hf_nmt_interp.cli.verbs.attribute import add_method, add_targets, explained
from hf_nmt_interp.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sentences, targets, method, lengths, model, decoding and output."""
    add_targets(parser)
    add_method(parser)
    parser.add_argument("--statistic", metavar="NAME", help="one of the four above (default: all)")
    parser.add_argument("--source-tokens", type=positive, metavar="N", help="only sources of N tokens, with EOS")
    parser.add_argument("--target-tokens", type=positive, metavar="N", help="only translations of N tokens, with EOS")
    add_translating(parser)


def run(args: argparse.Namespace) -> None:
    """Explain, average and write."""
    from hf_nmt_interp.analysis.contributions import STATISTICS, contribution_curves

    if args.statistic is not None and args.statistic not in STATISTICS:
        raise InputError(f"--statistic: {args.statistic!r} is not one of {', '.join(STATISTICS)}")
    results = list(explained(args))
    for argument, number, side in (
        ("--source-tokens", args.source_tokens, "source_tokens"),
        ("--target-tokens", args.target_tokens, "target_tokens"),
    ):
        if number is not None:
            lengths = sorted({len(getattr(r, side)) for r in results})
            results = [r for r in results if len(getattr(r, side)) == number]
            if not results:
                raise InputError(f"{argument}: no sentence has {number}; there are {', '.join(map(str, lengths))}")
    rows: list[Row] = [
        {"statistic": name, "position": position, "mean": mean, "low": low, "high": high, "sentences": count}
        for name, curve in contribution_curves(results).items()
        if args.statistic in (None, name)
        for position, (mean, low, high, count) in enumerate(
            zip(*(_rounded(a) for a in (curve.mean, curve.low, curve.high)), curve.count.tolist(), strict=True)
        )
        if count
    ]
    write_rows(rows, args, "Contributions")


def _rounded(values) -> list[float | None]:
    return [None if value != value else round(float(value), 4) for value in values]  # NaN has no place in JSON
