"""LRP rules: how a unit's relevance is divided among the messages it received. One file and one line here each."""

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor

from hf_nmt_interp.attribution.rules.alpha_beta import AlphaBeta
from hf_nmt_interp.attribution.rules.epsilon import Epsilon
from hf_nmt_interp.errors import InputError


class Rule(Protocol):
    """A rule cuts messages z into parts; a unit's relevance goes to each part's inputs in proportion to it."""

    def split(self, z: Tensor) -> Iterable[tuple[float, Tensor]]:
        """Parts of the messages with their weights; may write into `z`."""

    def split_product(self, a: Tensor, b: Tensor) -> Iterable[list[tuple[Tensor, Tensor]]]:
        """For messages a * b, the same parts as `split(a * b)` as sums of products of factors."""

    def inverse(self, total: Tensor) -> Tensor:
        """What the sum of a part is divided by, as a factor."""


RULES: dict[str, Any] = {"alpha_beta": AlphaBeta, "epsilon": Epsilon}


def make_rule(name: str, **settings) -> Rule:
    """The rule of that name, with those of the settings that it has.

    >>> make_rule("alpha_beta", alpha=1.0, beta=0.0)
    AlphaBeta(alpha=1.0, beta=0.0)
    """
    if name not in RULES:
        raise InputError(f"rule: {name!r} is not one of {', '.join(RULES)}")
    return RULES[name](**{k: v for k, v in settings.items() if k in RULES[name].__dataclass_fields__})
