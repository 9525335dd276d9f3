"""Masks, perturbed and calibrated attention weights, and their fusions (Lu et al. 2021, section 3).

To add a fusion: a subclass of `Fusion` and its entry in `FUSIONS`.

Definitions: docs/methods.md of hf_nmt_interp, Calibrated cross-attention.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init


def mask_of(scores: Tensor, visible: Tensor | None = None) -> Tensor:
    """m = sigmoid(q W_Q (K W_K)' / sqrt(d_k)) (eq. 4) of scores [B, H, T, S]; 1 (unperturbed) at padding."""
    mask = torch.sigmoid(scores)
    return mask if visible is None else mask.masked_fill(~visible, 1)


def perturb(attention: Tensor, mask: Tensor, visible: Tensor | None = None) -> Tensor:
    """a_p = m a + (1 - m) / n over the n real source tokens (eq. 3).

    >>> perturb(torch.tensor([0.9, 0.1]), torch.tensor([0.0, 1.0])).tolist()
    [0.5, 0.10000000149011612]
    """
    n = mask.shape[-1] if visible is None else visible.sum(-1, keepdim=True)
    return mask * attention + (1 - mask) / n


def calibrate(attention: Tensor, mask: Tensor) -> Tensor:
    """a_c = a exp(1 - m) (eq. 7)."""
    return attention * torch.exp(1 - mask)


class Fusion(nn.Module, ABC):
    """Combines original weights a and calibrated weights a_c into the weights that a layer decodes with."""

    def __init__(self, config, heads: int, size: int):  # model configuration; heads H of a layer; units of a head
        super().__init__()

    def gate(self, query: Tensor) -> Tensor | None:
        """Share of the original weights, [B, H, T] for each step; None if steps do not differ."""
        return None

    @abstractmethod
    def forward(self, attention: Tensor, calibrated: Tensor, gate: Tensor | None, visible: Tensor | None) -> Tensor:
        """Fused weights [B, H, T, S] from a and a_c [B, H, T, S], the gate, and visible keys [B, 1, T or 1, S]."""

    def reset(self, std: float) -> None:
        """Initialise the weights that were not loaded."""

    def count_step(self) -> None:
        """Called after each training step."""


class FixedUnnormalised(Fusion):
    """a + lambda a_c, as in the authors' released code."""

    def __init__(self, config, heads: int, size: int):
        super().__init__(config, heads, size)
        self.weight = config.fusion_lambda

    def forward(self, attention, calibrated, gate, visible):
        return attention + self.weight * calibrated


class Fixed(FixedUnnormalised):
    """softmax(a + lambda a_c) over the real tokens (eq. 8)."""

    def forward(self, attention, calibrated, gate, visible):
        fused = super().forward(attention, calibrated, gate, visible)
        return (fused if visible is None else fused.masked_fill(~visible, -torch.inf)).softmax(-1)


class Anneal(Fusion):
    """gamma(s) a + (1 - gamma(s)) a_c, gamma(s) = exp(-s / anneal_steps) (eq. 9); s is a buffer, saved and loaded."""

    step: Tensor

    def __init__(self, config, heads: int, size: int):
        super().__init__(config, heads, size)
        if not config.anneal_steps > 0:
            raise ValueError(f"anneal_steps={config.anneal_steps} must be above 0, e.g. 1e5")
        self.anneal_steps = config.anneal_steps
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def gamma(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Share of the original weights at this step, []."""
        exact = torch.promote_types(dtype, torch.float32)  # bfloat16 cannot count to 1,000
        return (self.step.to(exact) * (-1 / self.anneal_steps)).exp_().to(dtype)

    def forward(self, attention, calibrated, gate, visible):
        return calibrated.lerp(attention, self.gamma(attention.dtype))

    def reset(self, std: float) -> None:
        init.zeros_(self.step)

    def count_step(self) -> None:
        self.step += 1


class Gate(Fusion):
    """g a + (1 - g) a_c, g = sigmoid(q_h w_h + b_h) of each head's query (eq. 10)."""

    def __init__(self, config, heads: int, size: int):
        super().__init__(config, heads, size)
        self.weight = nn.Parameter(torch.zeros(heads, size))
        self.bias = nn.Parameter(torch.zeros(heads))

    def gate(self, query: Tensor) -> Tensor:
        logits = query @ self.weight[..., None]  # [B, H, T, D] @ [H, D, 1] -> [B, H, T, 1]
        return torch.sigmoid(logits[..., 0] + self.bias[:, None])

    def forward(self, attention, calibrated, gate, visible):
        return calibrated.lerp(attention, gate[..., None].to(attention.dtype))  # autocast mixes them

    def reset(self, std: float) -> None:
        init.normal_(self.weight, std=std)
        init.zeros_(self.bias)


FUSIONS: dict[str, Any] = {"fixed": Fixed, "fixed_unnormalised": FixedUnnormalised, "anneal": Anneal, "gate": Gate}


def make_fusion(config, heads: int, size: int) -> Fusion:
    """The fusion that a configuration names."""
    if config.fusion not in FUSIONS:
        raise ValueError(f"fusion={config.fusion!r} is not one of {', '.join(FUSIONS)}")
    return FUSIONS[config.fusion](config, heads, size)
