"""The gamma rule for inputs of both signs, with the rest of AttnLRP."""

import math
from dataclasses import dataclass

from torch import Tensor

from hf_nmt_interp.attribution.engine import Steps, multiply
from hf_nmt_interp.attribution.rules.attnlrp import AttnLRP
from hf_nmt_interp.attribution.rules.epsilon import sign
from hf_nmt_interp.errors import InputError


@dataclass(frozen=True)
class Gamma(AttnLRP):
    """AttnLRP, but in linear layers messages (and biases) with the sign of their sum count 1 + gamma times.

    `gamma=0` is AttnLRP. With a larger gamma, messages of both signs cancel less.
    """

    gamma: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gamma < math.inf:
            raise InputError("gamma", self.gamma, "must be at least 0 and finite", "the default is 0.25")

    def messages(self, z: Tensor) -> Tensor:
        return self._count(z, z.abs(), sign(z.sum(-1, keepdim=True)))

    def _count(self, z: Tensor, size: Tensor, signs: Tensor) -> Tensor:
        """z + gamma max(z, 0) for units of sign 1, z + gamma min(z, 0) for -1, from z and its absolute value."""
        return (1 + self.gamma / 2) * z + self.gamma / 2 * signs * size

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
        """The same as with `messages`, using |w x| = |w| |x|."""
        b = x.new_zeros(len(weight)) if bias is None else bias
        signs, size = sign(z), weight.abs()
        total = self._count(z, x.abs() @ size.T + b.abs(), signs)  # [L, m]
        share = self.shares(relevance, total, self._count(b, b.abs(), signs), absorbed)
        passed = multiply(share, weight, steps).mul_((1 + self.gamma / 2) * x[:, None])
        return passed.add_(multiply(share * signs[:, None], size, steps).mul_(self.gamma / 2 * x.abs()[:, None]))
