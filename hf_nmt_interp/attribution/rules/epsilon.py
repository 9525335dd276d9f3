"""The epsilon rule (Bach et al. 2015)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hf_nmt_interp.attribution.rules.base import Rule
from hf_nmt_interp.errors import InputError


@dataclass(frozen=True)
class Epsilon(Rule):
    """Share of input i: z_ij / (sum_i z_ij + epsilon sign(sum_i z_ij)), with sign(0) = 1.

    Beware of norms: they do not change when their input is scaled, so their messages nearly cancel, and the sum is
    little more than the bias (T5 has none). Shares of both signs are then huge: totals stay 1, but with epsilon=1e-6
    single tokens reach 1e12, so a float64 model is needed. Use it to compare with papers, `alpha_beta` to explain.
    """

    epsilon: float = 1e-6
    signed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < float("inf"):
            default = f"the default is {type(self).epsilon:g}"
            raise InputError("epsilon", self.epsilon, "must be positive and finite", default)

    def needs_float64(self, norms_scale: bool) -> bool:
        # shares of a sum that nearly cancels still add up: measured errors of scores reach 8.4e5 times the gap
        return not self.absorbs

    def split(self, z: Tensor) -> Iterator[tuple[float, Tensor]]:
        yield 1.0, z

    def split_product(self, a: Tensor, b: Tensor) -> Iterator[list[tuple[Tensor, Tensor]]]:
        yield [(a, b)]

    def inverse(self, total: Tensor) -> Tensor:
        return (total + self.small(total)).reciprocal()

    def small(self, total: Tensor) -> Tensor:
        """Epsilon with the sign of a sum."""
        return self.epsilon * sign(total)


def sign(total: Tensor) -> Tensor:
    """1 where a sum is 0 or more, -1 below."""
    return (total >= 0).to(total.dtype).mul_(2).sub_(1)
