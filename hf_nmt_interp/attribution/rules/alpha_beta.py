"""The alpha-beta rule (voita2021, eq. 5)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from hf_nmt_interp.attribution.rules.base import Rule
from hf_nmt_interp.errors import InputError


@dataclass(frozen=True)
class AlphaBeta(Rule):
    """Share of input i: alpha z+_ij / sum_i z+_ij + beta z-_ij / sum_i z-_ij; a missing sign adds 0.

    Where an attention weight is close to 1, a unit of the attention core may have only tiny messages of a sign. As in
    the authors' code, `stabilizer` is therefore added to |sum_i z_ij| there: such a unit passes on little, and the
    rest of its head, which is rescaled, passes on more.
    """

    alpha: float = 1.0
    beta: float = 0.0
    stabilizer: float = 1e-5

    def __post_init__(self) -> None:
        if min(self.alpha, self.beta) < 0 or not math.isclose(self.alpha + self.beta, 1.0):
            both = f"{self.alpha}, {self.beta} must be at least 0 and add up to 1"
            raise InputError("alpha, beta", None, both, "the defaults are 1 and 0")
        if not 0 <= self.stabilizer < math.inf:
            raise InputError("stabilizer", self.stabilizer, "must be at least 0 and finite", "the default is 1e-5")

    def split(self, z: Tensor) -> Iterator[tuple[float, Tensor]]:
        if self.beta:
            yield self.beta, z.clamp(max=0)
        if self.alpha:
            yield self.alpha, z.clamp_(min=0)

    def split_product(self, a: Tensor, b: Tensor) -> Iterator[list[tuple[Tensor, Tensor]]]:
        a_pos, a_neg, b_pos, b_neg = a.clamp(min=0), a.clamp(max=0), b.clamp(min=0), b.clamp(max=0)
        if self.beta:
            yield [(a_pos, b_neg), (a_neg, b_pos)]
        if self.alpha:
            yield [(a_pos, b_pos), (a_neg, b_neg)]

    def inverse(self, total: Tensor) -> Tensor:
        return total.reciprocal().nan_to_num_(posinf=0, neginf=0)

    def inverse_in_attention(self, total: Tensor) -> Tensor:
        return self.inverse(total + self.stabilizer * total.sign())
