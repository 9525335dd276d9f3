"""Removes heads from the attentions of Marian, BART, mBART, M2M100, T5 and mT5, and keeps their forward passes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.cache_utils import EncoderDecoderCache
from transformers.models.mt5.modeling_mt5 import MT5Attention
from transformers.models.t5.modeling_t5 import T5Attention

from .gates import GatedLinear, HardConcreteGate

Attention = Any  # an attention module of one of the families; `kept_heads` are its heads' original indices
GHOST_SIZE = 8  # the smallest head size that every attention kernel accepts


class Names(NamedTuple):
    """Names of the parts of a family's attention."""

    inputs: Sequence[str]  # projections to queries, keys, values
    output: str
    heads: str
    size: str


BART_NAMES = Names(("q_proj", "k_proj", "v_proj"), "out_proj", "num_heads", "head_dim")
T5_NAMES = Names(("q", "k", "v"), "o", "n_heads", "key_value_proj_dim")


def names_of(attention: Attention) -> Names:
    return T5_NAMES if isinstance(attention, T5Attention | MT5Attention) else BART_NAMES


class GhostProjection(nn.Module):
    """Queries, keys or values of a layer without heads: one small head of zeros.

    Attention kernels need at least one head, the cache counts its tokens by layer 0, and the parameters before the
    layer get a gradient of zero; distributed training would treat a missing gradient as an error.
    """

    def forward(self, hidden_states: Tensor) -> Tensor:
        return 0 * hidden_states[..., :1].expand(*hidden_states.shape[:-1], GHOST_SIZE)


class BiasOnly(nn.Module):
    """Output projection of a layer without heads: only the bias, or zero."""

    def __init__(self, projection: nn.Linear):
        super().__init__()
        self.out_features = projection.out_features
        self.bias = projection.bias

    def forward(self, ghost: Tensor) -> Tensor:
        zeros = ghost[..., :1].expand(*ghost.shape[:-1], self.out_features)
        return zeros if self.bias is None else zeros + self.bias


class KeptHeads(nn.Module):
    """A T5 attention with some of its heads; the position bias that layers share keeps a column for every head."""

    kept_heads: list[int]
    layer_idx: Any
    compute_bias: Any

    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None, past_key_values=None, **kw):
        own = None  # cross-attention has no position bias
        if key_value_states is None:
            if position_bias is None:
                position_bias = self._position_bias(hidden_states, past_key_values)
            own = position_bias[:, self.kept_heads or [0]]  # a ghost head's column does not matter
        given = hidden_states, mask, key_value_states, own, past_key_values
        output, _, weights = super().forward(*given, **kw)
        return output, position_bias, weights

    def _position_bias(self, hidden_states: Tensor, past_key_values) -> Tensor:
        """Bias of all heads [1, H, T, keys], as the first layer computes it for the layers after it."""
        queries = hidden_states.shape[1]
        if past_key_values is None:
            return self.compute_bias(queries, queries)
        if isinstance(past_key_values, EncoderDecoderCache):
            past_key_values = past_key_values.self_attention_cache
        keys, _ = past_key_values.get_mask_sizes(queries, self.layer_idx)
        return self.compute_bias(queries, keys, past_seen_tokens=past_key_values.get_seq_length(self.layer_idx))


class KeptHeadsT5Attention(KeptHeads, T5Attention):
    """T5 attention with some of its heads."""


class KeptHeadsMT5Attention(KeptHeads, MT5Attention):
    """mT5 attention with some of its heads."""


def keep_heads(attention: Attention, keep: list[int]) -> None:
    """Keep only some heads of an attention, as positions in `kept_heads`; without heads, only the output bias."""
    if len(keep) == len(attention.kept_heads):
        return
    names = names_of(attention)
    attention.kept_heads = [attention.kept_heads[i] for i in keep]
    size = getattr(attention, names.size) if keep else GHOST_SIZE
    setattr(attention, names.size, size)
    setattr(attention, names.heads, len(keep) or 1)
    if names is T5_NAMES:
        # same parameters and forward pass, with one more step before it
        is_mt5 = isinstance(attention, MT5Attention)
        attention.__class__ = KeptHeadsMT5Attention if is_mt5 else KeptHeadsT5Attention
        attention.inner_dim = getattr(attention, names.heads) * size
    if not keep:
        for name in names.inputs:
            setattr(attention, name, GhostProjection())
        setattr(attention, names.output, BiasOnly(getattr(attention, names.output)))
        return
    units = (torch.tensor(keep)[:, None] * size + torch.arange(size)).flatten()  # [heads, size] -> [heads * size]
    for name in names.inputs:
        _keep_units(getattr(attention, name), units, dim=0)
    _keep_units(getattr(attention, names.output), units, dim=1)


def _keep_units(linear: nn.Linear, units: Tensor, dim: int) -> None:
    for name in ["weight", "bias"] if dim == 0 and linear.bias is not None else ["weight"]:
        old = getattr(linear, name)
        kept = old.detach().index_select(dim, units.to(old.device))
        setattr(linear, name, nn.Parameter(kept, requires_grad=old.requires_grad))
    linear.out_features, linear.in_features = linear.weight.shape


def gate_of(attention: Attention) -> HardConcreteGate | None:
    return getattr(getattr(attention, names_of(attention).output), "gate", None)


def set_gate(attention: Attention, gate: HardConcreteGate | None) -> None:
    """Put a gate before an attention's output projection, or remove it; the projection's parameters are kept."""
    name = names_of(attention).output
    old = getattr(attention, name)
    has_bias = old.bias is not None
    new = (nn.Linear if gate is None else GatedLinear)(old.in_features, old.out_features, has_bias, device="meta")
    new.weight, new.bias = old.weight, old.bias
    if gate is not None:
        new.gate = gate.to(old.weight.device)
    setattr(attention, name, new.train(old.training))
