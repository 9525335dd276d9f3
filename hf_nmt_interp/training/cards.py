"""Model cards of training runs: collects the trainer's data for `report.cards`."""

import dataclasses
from enum import Enum
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from hf_nmt_interp.models.loading import is_path
from hf_nmt_interp.report.cards import model_card

_LOCAL = ("output_dir", "logging_dir", "run_name", "hub_model_id", "local_rank", "resume_from_checkpoint", "report_to")


def changed_arguments(config: Any) -> dict[str, str]:
    """Training arguments that differ from the defaults, as text, without local paths and tokens."""
    found = {}
    for field in dataclasses.fields(config):
        if not field.init or field.name in (*_LOCAL, "hub_token", "push_to_hub_token"):
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        value = getattr(config, field.name)
        value, default = (item.value if isinstance(item, Enum) else item for item in (value, default))
        if value != default and isinstance(value, bool | int | float | str | list):
            found[field.name] = str(value)
    return found


def hub_name(model: str | None) -> str | None:
    """Hub repository of the model that training starts from, by its name or the card in its folder, if known."""
    if model is None or model.startswith("demo:"):
        return None
    if not Path(model).exists():
        return None if is_path(model) else model  # the folder no longer exists
    if not (card := Path(model) / "README.md").is_file():
        return None
    known = ModelCard(card.read_text(encoding="utf-8"), ignore_metadata_errors=True).data
    name = known.get("model_name")
    return name if "/" in (name or "") else known.get("base_model")


def write_card(config: Any, folder: str | Path, **about: Any) -> None:
    """`README.md` of a model saved in a folder, from the trainer's arguments and the arguments of `model_card`."""
    known = {
        "arguments": changed_arguments(config),
        "name": config.hub_model_id,
        "risk": getattr(config, "risk", None),
    }
    text = model_card(folder, {name: value for name, value in (known | about).items() if value is not None})
    (Path(folder) / "README.md").write_text(text, encoding="utf-8")
