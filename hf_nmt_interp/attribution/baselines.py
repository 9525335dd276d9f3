"""Baselines: vectors that replace removed tokens."""

from typing import Any

import torch
from torch import Tensor

from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models.families import Stack


@torch.no_grad()
def baseline_vector(model: Any, stack: Stack, baseline: str | int) -> Tensor:
    """Embedding [d] of "zero", "pad", or the token of an id, scaled as the stack scales it."""
    embedding: Any = stack.embedding
    if isinstance(baseline, int):
        if not 0 <= baseline < embedding.num_embeddings:
            problem = f"is not among the model's {embedding.num_embeddings} tokens"
            raise InputError("baseline", baseline, problem, "give the id of a token, zero or pad")
    else:
        check_choice("baseline", baseline, ["zero", "pad"], "or the id of a token")
    if baseline == "pad" and model.config.pad_token_id is None:
        raise InputError("baseline", "pad", "the model has no padding token", "use zero")
    token = model.config.pad_token_id if baseline == "pad" else 0 if baseline == "zero" else baseline
    found = embedding(torch.tensor([token], device=model.device))[0] * stack.scale
    return torch.zeros_like(found) if baseline == "zero" else found
