"""The weight ratios of voita2019, appendix A.2."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hf_nmt_interp.attribution.engine import Core, Steps, rescale_heads
from hf_nmt_interp.attribution.rules.epsilon import Epsilon


@dataclass(frozen=True)
class Ratio(Epsilon):
    """Divides sums like the epsilon rule, and products by u / sum u'.

    The paper ignores non-linear functions, so the softmax passes the relevance of a weight on to its score. It has no
    rule for norms; `norm="scale"` treats them as a constant scale. Sums that nearly cancel would produce relevance of
    1e20 on trained translators, so epsilon is large, and the relevance that it absorbs is divided evenly.
    """

    epsilon: float = 0.5

    def needs_float64(self, norms_scale: bool) -> bool:
        return not norms_scale

    def give_back(self, passed: Tensor, came: Tensor) -> Tensor:
        return passed.add_((came.sum(-1, keepdim=True) - passed.sum(-1, keepdim=True)) / passed.shape[-1])

    def product(self, relevance: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        share = relevance * self.inverse(a + b)[:, None]
        to_a, to_b = self.give_back(torch.cat([share * a[:, None], share * b[:, None]], -1), relevance).chunk(2, -1)
        return to_a, to_b

    def attention(
        self, relevance: Tensor, core: Core, steps: Steps, absorbed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """out[t,d] = sum_s of the products w[t,s] v[s,d], and the score of w[t,s] = sum_e of q[t,e] k[s,e]."""
        if core.fixed:
            return super().attention(relevance, core, steps, absorbed)
        q, k, v, _, w, *_ = core
        weights, values = w[..., None], v[:, None]  # [H, t, s, 1], [H, 1, s, d]
        term = weights * values * self.inverse(weights + values)  # [H, t, s, d]
        share = relevance * self.inverse(w @ v)[:, :, None]  # [H, t, k, d]
        to_v = torch.einsum("htkd,htsd->hskd", share, term * values)
        to_w = torch.einsum("htkd,htsd->htks", share, term * weights)
        queries, keys = q[:, :, None], k[:, None]
        term = queries * keys * self.inverse(queries + keys)  # [H, t, s, e]
        share = to_w * self.inverse(q @ k.mT)[:, :, None]  # [H, t, k, s]
        to_q = torch.einsum("htks,htse->htke", share, term * queries)
        to_k = torch.einsum("htks,htse->hske", share, term * keys)
        return rescale_heads(relevance, to_q, to_k, to_v, w)
