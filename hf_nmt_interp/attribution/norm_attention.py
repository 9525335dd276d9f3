"""Norms of weighted value vectors in place of attention weights (Kobayashi et al. 2020).

Definitions: docs/methods.md, Attention baselines.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.attention import AttentionWeights, attention_weights
from hf_nmt_interp.attribution.layered import LayeredMethod, head_vectors
from hf_nmt_interp.attribution.tape import Tape, widened
from hf_nmt_interp.errors import InputError


class NormAttention(AttentionWeights, LayeredMethod):
    """Norm of the vector that each token adds to a layer's output through attention, divided by the sum over tokens.

    |sum_h a^h_ts W_O^h W_V^h x_s|_2 for token s at step t (Kobayashi et al. 2020). Cross-attention for the source,
    self-attention for the prefix: both sum to 1, as in `AttentionWeights`.

    Args:
        model: a Transformer whose layers are known.
        layer: decoder layer, as in `AttentionWeights`.
        head: one head, None for the vectors of all heads together.
        shifted: use the source norms of the step that has y_t as its input for y_t.
        max_memory: bytes of vectors in memory at a time.
    """

    name, title, dequantises = "norm_attention", "norm_attention", True
    aligns_online = False  # values of earlier steps are in the cache of `generate()`
    fits, models = LayeredMethod.fits, LayeredMethod.models

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int | str | None = None,
        head: int | None = None,
        shifted: bool | None = None,
        max_memory: int = 2**30,
    ) -> None:
        super().__init__(model, layer, head, shifted)
        if max_memory < 1:
            raise InputError("max_memory", max_memory, "bytes must be more than 0", "the default is 2**30")
        self.max_memory = max_memory

    def _reads(self, attention: Any) -> list[nn.Module]:
        return [*attention.recorded, attention.value]

    def _weights(self, tape: Tape, attention: Any, mask: Tensor) -> Tensor:
        weights = widened(attention_weights(tape, attention, mask))  # [B, H, P, S]
        if not attention.heads or self.head not in (None, *attention.heads):
            return weights[:, 0] * 0
        vectors = head_vectors(tape, attention, bias=False)  # [B, S, H, d]
        if self.head is not None:
            one = attention.heads.index(self.head)
            weights, vectors = weights[:, one : one + 1], vectors[:, :, one : one + 1]
        block = max(1, self.max_memory // (2 * vectors[:, :, 0].nbytes))  # queries at a time
        queries = weights.permute(0, 3, 2, 1).split(block, 2)  # [B, S, p, H]
        norms = torch.cat([(some @ vectors).norm(dim=-1) for some in queries], 2).transpose(1, 2)  # [B, P, S]
        total = norms.sum(-1, keepdim=True)
        return norms / total.masked_fill(total == 0, 1)
