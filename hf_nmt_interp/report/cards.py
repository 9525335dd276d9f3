"""Model cards made from data: a training run's `results.json` and the exported model folder."""

import json
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError


def translation_card(folder: str | Path, results: dict[str, Any], **about: Any) -> str:
    """The card of a translator that `train_translation.py` trained or `train_l0.py` pruned.

    Args:
        folder: the exported model.
        results: what the training run wrote to `results.json`.
        about: name, source_lang, target_lang, data, datasets, license, license_name, test_name, usage; if usage is not
            Python, usage_language; if there is something to say, note.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined, UndefinedError

    folder = Path(folder)
    weights = folder / "model.safetensors"
    config = {"kept_heads": None} | json.loads((folder / "config.json").read_text(encoding="utf-8"))
    loader = PackageLoader("hf_nmt_interp.report")
    template = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True).get_template(
        "translation_card.md"
    )
    facts = {
        "config": config,
        "parameters": _parameters(weights),
        "size": weights.stat().st_size,
        "dtype": config.get("dtype", "float32"),
        "sacrebleu": version("sacrebleu"),
        "command": _wrap(results["command"]),
        "note": None,
        "usage_language": "python",
    }
    results = results | results.get("pruned", {})
    try:
        return template.render(results=results, **(facts | about))
    except UndefinedError as error:
        raise InputError(f"about: {error}; translation_card needs it") from error


def _parameters(weights: Path) -> int:
    from math import prod

    from safetensors import safe_open

    with safe_open(weights, "np") as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def _wrap(command: str) -> str:
    r"""A command with one option a line.

    >>> print(_wrap("python train.py --steps 5 --name 'a b'"))
    python train.py \
        --steps 5 \
        --name 'a b'
    """
    lines: list[str] = []
    for word in shlex.split(command):
        if word.startswith("--") or not lines:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
    return " \\\n    ".join(lines)
