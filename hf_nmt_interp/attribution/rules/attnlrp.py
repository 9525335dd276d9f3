"""AttnLRP (Achtibat et al. 2024): CP-LRP with rules for the softmax and for products of matrices."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hf_nmt_interp.attribution.engine import Core, Steps, query_blocks
from hf_nmt_interp.attribution.rules.cp_lrp import CPLRP


@dataclass(frozen=True)
class AttnLRP(CPLRP):
    """Divides sums by the epsilon rule, products in halves, and a softmax by its Taylor expansion.

    Biases, T5's position biases, epsilon and the constant term of the expansion keep their part.
    """

    def attention(
        self, relevance: Tensor, core: Core, steps: Steps, absorbed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """out = W V, W = softmax(X), X = c Q K' + position bias: half to W and V, half to Q and K."""
        if core.fixed or core.scores is None:
            return super().attention(relevance, core, steps, absorbed)
        q, k, v, out, w, c, *_ = core
        (heads, length, K, size), keys = relevance.shape, k.shape[1]
        to_q, to_k, to_v = (relevance.new_zeros(heads, n, K, size) for n in (length, keys, keys))
        for queries, first, last in query_blocks(length, heads * K * max(keys, size), steps):
            here, weights, query = absorbed[first:last], w[:, queries], q[:, queries]
            share = self.shares(relevance[:, queries, first:last], 2 * out[:, queries], 0.0, here)  # [H, t, k, D]
            to_v[:, :, first:last] += torch.einsum("hts,htkd->hskd", weights, share) * v[:, :, None]
            to_w = (share @ v[:, None].mT) * weights[:, :, None]  # [H, t, k, S]
            x = core.scores[:, queries]
            x = x.masked_fill(x == -torch.inf, 0)  # hidden keys, whose weights have no relevance
            to_x = self.softmax(to_w, x, weights, here)
            share = self.shares(to_x, 2 * x, 2 * (x - c * query @ k.mT), here)  # [H, t, k, S]
            to_q[:, queries, first:last] += c * (share @ k[:, None]) * query[:, :, None]
            to_k[:, :, first:last] += c * torch.einsum("htks,hte->hske", share, query) * k[:, :, None]
        return to_q, to_k, to_v

    def softmax(self, relevance: Tensor, x: Tensor, w: Tensor, absorbed: Tensor) -> Tensor:
        """Relevance x_i (R_i - w_i sum_j R_j) of the scores x [H, t, S], from that of the weights w [H, t, k, S].

        w_j = sum_i of (dw_j / dx_i) x_i + w_j (1 - x_j + sum_i w_i x_i); the last term is constant and absorbs.
        """
        constant = 1 - x + (w * x).sum(-1, keepdim=True)
        absorbed += (relevance @ constant[..., None])[..., 0].flatten(0, -2).sum(0)
        return x[:, :, None] * (relevance - w[:, :, None] * relevance.sum(-1, keepdim=True))
