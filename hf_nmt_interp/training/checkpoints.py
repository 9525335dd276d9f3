"""Checkpoints: the mean of the last few."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from hf_nmt_interp.errors import InputError


def list_checkpoints(folder: str | Path) -> list[Path]:
    """Complete `checkpoint-<step>` folders of a training run, oldest first."""
    found = [p for p in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*") if (p / "trainer_state.json").is_file()]
    return sorted(found, key=lambda p: int(p.name.rsplit("-", 1)[1]))


def average_checkpoints(model: PreTrainedModel, folders: Sequence[str | Path]) -> None:
    """Set the weights of `model` to the mean of the checkpoints' `model.safetensors` (Vaswani et al. 2017)."""
    if not folders:
        raise InputError(
            "folders: no checkpoint to average; train with save_steps and save_total_limit >= average_last"
        )
    total: dict[str, torch.Tensor] = {}
    for folder in folders:
        for name, weight in load_file(Path(folder) / "model.safetensors").items():
            total[name] = total.get(name, 0) + weight.double() / len(folders)
    own = model.state_dict()
    missing = set(total) - set(own)
    if missing:
        raise InputError(
            f"folders: {folders[0]} has weights the model lacks: {sorted(missing)[:3]}; same architecture?"
        )
    # tied weights are saved once and shared in the model, so what is not in the file follows what is
    model.load_state_dict({name: weight.to(own[name].dtype) for name, weight in total.items()}, strict=False)
    model.tie_weights()
