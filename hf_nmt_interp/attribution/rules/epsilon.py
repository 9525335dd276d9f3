"""The epsilon rule (voita2019, appendix A)."""

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
    single tokens reach 1e12 and float32 is not enough. Use it to compare with papers, `alpha_beta` to explain.
    """

    epsilon: float = 1e-6
    signed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise InputError("epsilon", self.epsilon, "must be positive", "the default is 1e-6")

    def split(self, z: Tensor) -> Iterator[tuple[float, Tensor]]:
        yield 1.0, z

    def split_product(self, a: Tensor, b: Tensor) -> Iterator[list[tuple[Tensor, Tensor]]]:
        yield [(a, b)]

    def inverse(self, total: Tensor) -> Tensor:
        return (total + self.epsilon * (total >= 0).to(total.dtype).mul_(2).sub_(1)).reciprocal()
