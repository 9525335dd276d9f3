"""CP-LRP (Ali et al. 2022): the epsilon rule, with attention weights and the scales of norms as constants."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hf_nmt_interp.attribution.engine import Core, Steps, multiply
from hf_nmt_interp.attribution.rules.epsilon import Epsilon


@dataclass(frozen=True)
class CPLRP(Epsilon):
    """Divides sums by the epsilon rule; biases and epsilon keep their part.

    Relevance is a multiple of the unit that it is divided by, so shares stay moderate, and epsilon only has to
    prevent a division by 0. It is small because relevance jumps where a unit as small as epsilon changes its sign.
    """

    epsilon: float = 1e-9
    absorbs: ClassVar[bool] = True

    def shares(self, relevance: Tensor, total: Tensor, constant: Tensor | float, absorbed: Tensor) -> Tensor:
        """R_j / (z_j + epsilon sign z_j) [..., K, m]; epsilon and the constant part of z_j [..., m] absorb theirs."""
        share = relevance * self.inverse(total)[..., None, :]
        kept = share @ (self.small(total) + constant)[..., None]  # [..., K, 1]
        absorbed += kept[..., 0].flatten(0, -2).sum(0)
        return share

    def messages(self, z: Tensor) -> Tensor:
        """Weighted messages to a linear unit [..., inputs]."""
        return z

    def linear(
        self,
        relevance: Tensor,
        x: Tensor,
        z: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        steps: Steps,
        absorbed: Tensor,
    ) -> Tensor:
        share = self.shares(relevance, z, 0.0 if bias is None else bias, absorbed)
        return multiply(share, weight, steps).mul_(x[:, None])

    def projection(self, x: Tensor, weight: Tensor, bias: Tensor, absorbed: Tensor) -> Tensor:
        z = self.messages(torch.cat([weight * x, bias[:, None]], -1))  # [K, n + 1]
        total = z.sum(-1)
        share = self.inverse(total)
        absorbed += share * (self.small(total) + z[:, -1])
        return share[:, None] * z[:, :-1]

    def norm(self, relevance: Tensor, x: Tensor, z: Tensor, norm: Any, steps: Steps, absorbed: Tensor) -> Tensor:
        """A linear layer, z_j = w_j s (x_j - mean) + b_j with a constant s; RMS norms have no mean and no bias."""
        layer_norm = isinstance(norm, torch.nn.LayerNorm)
        centred = x - x.mean(-1, keepdim=True) if layer_norm else x
        s = (centred.square().mean(-1, keepdim=True) + (norm.eps if layer_norm else norm.variance_epsilon)).rsqrt()
        bias = getattr(norm, "bias", None)
        slope = self.shares(relevance, z, 0.0 if bias is None else bias, absorbed).mul_((norm.weight * s)[:, None])
        return x[:, None] * (slope - slope.mean(-1, keepdim=True) if layer_norm else slope)

    def addition(self, relevance: Tensor, a: Tensor, b: Tensor, absorbed: Tensor) -> tuple[Tensor, Tensor]:
        share = self.shares(relevance, a + b, 0.0, absorbed)
        return share * a[:, None], share * b[:, None]

    def constant(self, relevance: Tensor, to_stream: Tensor, to_constant: Tensor, absorbed: Tensor) -> Tensor:
        absorbed += to_constant.sum((0, 2))
        return to_stream

    def attention(
        self, relevance: Tensor, core: Core, steps: Steps, absorbed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """out[t,d] = sum_s of w[t,s] v[s,d], of which only v gets relevance."""
        share = self.shares(relevance, core.out, 0.0, absorbed)  # [H, t, k, D]
        to_v = torch.einsum("hts,htkd->hskd", core.w, share) * core.v[:, :, None]
        return torch.zeros_like(relevance), torch.zeros_like(to_v), to_v
