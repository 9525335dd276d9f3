"""The alignment head: attention from decoder states to encoder states, next to the translator (Chen et al. 2020)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import initialization as init


class AlignmentHead(nn.Module):
    """A = mean over heads of softmax(norm(z) W_Q (h W_K)' / sqrt(d_k)), z decoder states, h encoder states.

    Row t of A aligns the token that the decoder reads at position t: its state depends on it (Chen et al. 2020,
    SHIFT).
    """

    same_outputs = True  # not a part of the translator, see `is_plain`

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"alignment_heads={heads} does not divide the width of the model, {width}")
        self.heads = heads
        self.norm = nn.LayerNorm(width)  # states between the layers of pre-norm families can have any size
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)

    def forward(self, states: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Soft links [B, T, S]; each row sums to 1 over the source tokens that are not padding.

        Args:
            states: decoder states [B, T, d].
            memory: encoder states [B, S, d].
            mask: [B, S], 0 for padding.
        """
        query, key = self.q_proj(self.norm(states)), self.k_proj(memory)
        query, key = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (query, key))  # [B, H, T or S, d_k]
        scores = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5  # [B, H, T, S]
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None] == 0, torch.finfo(scores.dtype).min)
        return scores.softmax(-1).mean(1)

    @torch.no_grad()
    def reset(self, start: Mapping[str, Tensor] | None = None) -> None:
        """Initialise the weights that were not loaded: from `start`, by their names, or at random."""
        for name, weight in self.named_parameters():
            if start and name in start:
                init.copy_(weight, start[name])
            elif name.endswith("bias"):
                init.zeros_(weight)
            elif name.startswith("norm"):
                init.ones_(weight)
            else:
                init.normal_(weight, std=weight.shape[-1] ** -0.5)
