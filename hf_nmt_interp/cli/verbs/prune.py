"""Remove attention heads from a translator, which makes it smaller and faster.

A gated model loses its closed heads, and its outputs stay the same; trainer_scripts/train_l0.py trains gates, or
`model.set_kept_heads` sets them. With --heads and --keep, any model loses the encoder heads that are least relevant in
a report of `heads`: this needs no training, but a model trained with gates translates better at the same size. The
pruned model can be loaded with `from_pretrained`, and as --model of every verb.

Examples:
  hf-nmt-interp prune --model runs/l0/gated --output runs/l0/small
  hf-nmt-interp prune --model demo:en-de --heads heads.json --keep 2 --output small
"""

import argparse
from typing import Any

from hf_nmt_interp.cli.output import Row
from hf_nmt_interp.cli.paths import InputFile, OutputFolder, check_new_folder
from hf_nmt_interp.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help="local folder, Hub id or demo:en-de")
    parser.add_argument(
        "--heads", type=InputFile, metavar="FILE", help="report of `heads` as JSON, for a model without gates"
    )
    help = "number of most relevant encoder heads to keep: one for all layers, or one per layer, e.g. 6 2 5 7 4 8"
    parser.add_argument("--keep", type=int, nargs="+", metavar="N", help=help)
    parser.add_argument("--output", type=OutputFolder, required=True, metavar="FOLDER", help="new folder to save to")


def run(args: argparse.Namespace) -> None:
    if (args.heads is None) != (args.keep is None):
        raise InputError("--heads and --keep", None, "one of them was given without the other", "give both")
    check_new_folder("--output", args.output)

    from rich.console import Console

    from hf_nmt_interp.cli.loading import load
    from hf_nmt_interp.models.loading import save_whole
    from hf_nmt_interp.report.terminal import table

    model, tokenizer = load(args.model, "cpu")
    parameters = model.num_parameters()
    if args.heads:
        model = _keep_most_relevant(args)
    elif not getattr(model.config, "gated_attentions", None):
        remedy = "train_l0.py trains them, or give --heads"
        raise InputError("--model", args.model, f"({type(model).__name__}) has no gates", remedy)
    pruned = model.prune()
    save_whole(args.output, pruned, tokenizer)
    before = {kind: [attention.kept_heads for attention in layers] for kind, layers in model.attentions().items()}
    rows = [_row("before", parameters, before), _row("pruned", pruned.num_parameters(), pruned.kept_heads())]
    Console().print(table(rows))


def _keep_most_relevant(args: argparse.Namespace) -> Any:
    """The model with gates on its encoder, which are open for the most relevant heads of each layer."""
    from hf_nmt_interp.analysis.heads import HeadReport
    from hf_nmt_interp.models.loading import quiet
    from hf_nmt_interp.training.l0 import load_gated

    kept = HeadReport.load(args.heads).most_relevant(args.keep[0] if len(args.keep) == 1 else args.keep)
    with quiet():
        gated = load_gated(args.model, "encoder")
    kept += [[]] * (len(gated.attentions()["encoder"]) - len(kept))  # layers without heads are not in the report
    try:
        gated.set_kept_heads({"encoder": kept})
    except ValueError as error:
        raise InputError("--heads", None, f"{args.heads} is not a report of {args.model!r}: {error}") from error
    return gated


def _row(name: str, parameters: int, heads: dict[str, list[list[int]]]) -> Row:
    counts = {kind: sum(map(len, layers)) for kind, layers in heads.items()}
    e, d, cross = counts["encoder"], counts["decoder"], counts["cross"]
    return {"model": name, "heads e/d/d-e": f"{e}/{d}/{cross}", "parameters": f"{parameters:,}"}
