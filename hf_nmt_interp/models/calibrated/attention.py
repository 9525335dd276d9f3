"""Calibrated cross-attention in the families' attention modules, through transformers' attention interface.

The mask network's queries and keys are computed together with those of the attention: `q_proj` and `k_proj` return 2 H
heads, the first H for attention, the others for the mask. The cache therefore stores the mask's keys, beam search
reorders them, and one product computes both scores.
"""

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from .fusion import Fusion, calibrate, make_fusion, mask_of, perturb

NAME = "calibrated_cross_attention"


class LayerWeights(NamedTuple):
    """Values computed by one layer."""

    attention: Tensor  # [B, H, T, S] original weights
    mask: Tensor  # [B, H, T, S]
    gate: Tensor | None  # [B, H, T]


@dataclass
class Calibration:
    """One forward pass: which weights it uses, and the values of its layers, if requested."""

    perturbed: bool = False
    layers: list[LayerWeights] = field(default_factory=list)


class MaskedLinear(nn.Linear):
    """A projection to queries or keys together with the mask network's W_Q or W_K: [..., d] -> [..., 2 d]."""

    mask: nn.Linear

    def forward(self, input: Tensor) -> Tensor:
        return torch.cat([F.linear(input, self.weight, self.bias), self.mask(input)], -1)


def add_calibration(attention: Any, config: Any) -> None:
    """Turn a family's cross-attention module into a calibrated one; its parameters are kept."""
    for name in ("q_proj", "k_proj"):
        old = getattr(attention, name)
        new = MaskedLinear(old.in_features, old.out_features, old.bias is not None, device="meta")
        new.weight, new.bias = old.weight, old.bias
        new.mask = nn.Linear(old.in_features, old.out_features, bias=False)
        setattr(attention, name, new)
    attention.fusion = make_fusion(config, attention.num_heads, attention.head_dim)
    # a separate configuration: self-attention keeps its implementation
    attention.config = copy.copy(attention.config)
    attention.config._attn_implementation = NAME


def calibrated_attention(
    module: nn.Module,  # a cross-attention with a `fusion`
    query: Tensor,  # [B, 2 H, T, D], of the attention and then of the mask
    key: Tensor,  # [B, 2 H, S, D]
    value: Tensor,  # [B, H, S, D]
    attention_mask: Tensor | None,  # in the format of any attention implementation
    scaling: float | None = None,  # of both scores, 1 / sqrt(D)
    dropout: float = 0.0,  # probability, on the weights that are used
    calibration: Calibration | None = None,  # kind of pass; None is fused
    **kwargs,  # of other attention functions
) -> tuple[Tensor, Tensor]:
    """Attention with fused weights, or perturbed ones: output [B, T, H, D] and weights [B, H, T, S]."""
    fusion, heads = getattr(module, "fusion", None), value.shape[1]
    if not isinstance(fusion, Fusion) or query.shape[1] != 2 * heads:
        raise ValueError(f"attn_implementation={NAME!r} is set only by calibrated models; load with eager or sdpa")
    visible = visible_keys(attention_mask)
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    scores, mask_scores = scores.split(heads, 1)
    if visible is not None:
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    attention = scores.softmax(-1)
    # in plain decoding, masks at padding are not changed, because its weight is 0
    mask = mask_of(mask_scores, None if calibration is None else visible)
    gate = None
    if calibration is not None and calibration.perturbed:
        weights = perturb(attention, mask, visible)
    else:
        gate = fusion.gate(query[:, :heads])
        weights = fusion(attention, calibrate(attention, mask), gate, visible)
    if calibration is not None:
        calibration.layers.append(LayerWeights(attention, mask, gate))
    output = F.dropout(weights, dropout, module.training) @ value
    return output.transpose(1, 2).contiguous(), weights


def visible_keys(mask: Any) -> Tensor | None:
    """A mask of eager (0 or -inf), sdpa (bool) or flash attention ([B, S]) as [B, 1, T or 1, S], False at padding."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise ValueError(f"attention_mask of type {type(mask).__name__} is not supported; load with eager or sdpa")
    if mask.ndim == 2:
        return mask[:, None, None].bool()
    return mask if mask.dtype == torch.bool else mask == 0


AttentionInterface.register(NAME, calibrated_attention)
AttentionMaskInterface.register(NAME, eager_mask)  # without it, transformers silently drops padding masks
