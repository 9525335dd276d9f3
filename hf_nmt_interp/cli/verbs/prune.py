"""Remove the closed heads of a gated translator for good: a smaller and faster model with the same outputs.

Gates are trained with trainer_scripts/train_l0.py, or set by `model.set_kept_heads`. The pruned folder loads with
`from_pretrained`, and with every verb's --model.

Examples:
  hf-nmt-interp prune --model runs/l0/gated --output runs/l0/small
"""

import argparse
from pathlib import Path
from typing import Any

from hf_nmt_interp.cli.output import Row
from hf_nmt_interp.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Gated model and pruned model."""
    parser.add_argument("--model", required=True, metavar="NAME", help="a gated model: local folder or Hub id")
    parser.add_argument(
        "--output", dest="folder", required=True, metavar="FOLDER", help="new folder for the pruned model"
    )


def run(args: argparse.Namespace) -> None:
    """Prune, save, and say what is left."""
    output = Path(args.folder)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"--output: {args.folder} exists and is not empty; name a new folder")

    from rich.console import Console

    from hf_nmt_interp.cli.loading import load, quiet
    from hf_nmt_interp.report.terminal import table

    model, tokenizer = load(args.model, "cpu")
    if not getattr(model.config, "gated_attentions", None):
        raise InputError(f"--model: {args.model!r} ({type(model).__name__}) has no gates; train_l0.py trains them")
    pruned = model.prune()
    with quiet():
        pruned.save_pretrained(output)
    tokenizer.save_pretrained(output)
    before = {kind: [attention.kept_heads for attention in layers] for kind, layers in model.attentions().items()}
    rows = [_row("gated", model, before), _row("pruned", pruned, pruned.kept_heads())]
    Console().print(table(rows))


def _row(name: str, model: Any, heads: dict[str, list[list[int]]]) -> Row:
    counts = {kind: sum(map(len, layers)) for kind, layers in heads.items()}
    e, d, cross = counts["encoder"], counts["decoder"], counts["cross"]
    return {"model": name, "heads e/d/d-e": f"{e}/{d}/{cross}", "parameters": f"{model.num_parameters():,}"}
