"""Agreement over source positions (snell2021, section 3.1); definitions: docs/methods.md, How attention learns."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from hf_nmt_interp.errors import InputError, check_choice

primary, greater_is_better = "agreement", True
TOP = 0.05
TIES = ("first", "mean")


def agreement(u: Tensor, v: Tensor, kept: Tensor | None = None, *, top: float = TOP, ties: str = "first") -> Tensor:
    """A(u, v) = 1[|{j : v_j > v_(argmax u)}| < 5 % L]: is the highest position of u among the top 5 % of v (eq. 10)?

    Positions of v that tie with it do not count against it. It is not symmetric in u and v.

    Args:
        u: [..., L] scores of positions; only the position of the highest one matters.
        v: [..., L] scores whose top positions count.
        kept: [..., L] which positions exist; None for all. The result is NaN for rows without positions.
        top: share of the positions that counts as top.
        ties: with several highest positions of u, use the "first", or the "mean" of A over them.

    Returns:
        [...] float64: 1 or 0 (between them with `ties="mean"`).

    >>> u, v = torch.tensor([0.1, 0.7, 0.2]), torch.tensor([5.0, 4.0, 1.0])
    >>> agreement(u, v).item(), agreement(u, v, top=0.5).item()
    (0.0, 1.0)
    """
    check_choice("ties", ties, TIES)
    kept = _check(kept, u=u, v=v)
    hidden = u.masked_fill(~kept, -torch.inf)
    highest = (hidden == hidden.amax(-1, keepdim=True)) & kept
    if ties == "first":
        highest &= highest.cumsum(-1) == 1
    found = (in_top(v, kept, top=top) & highest).sum(-1).double()
    return found / highest.sum(-1)


def in_top(v: Tensor, kept: Tensor | None = None, *, top: float = TOP) -> Tensor:
    """Which positions of v [..., L], of those that are `kept` [..., L], have fewer than 5 % L others above them."""
    kept = _check(kept, v=v)
    if not 0 < top <= 1:
        raise InputError("top", top, "must be above 0 and at most 1")
    falling = -v.masked_fill(~kept, -torch.inf)
    above = torch.searchsorted(falling.sort(-1).values, falling.contiguous())  # how many are strictly higher
    share = Fraction(str(top))  # exact decimal arithmetic: 0.05 * 140 is above 7 in binary
    bound = -(-kept.sum(-1, keepdim=True) * share.numerator // share.denominator)  # n < x is n < ceil(x)
    return (above < bound) & kept


def random_agreement(kept: Tensor, *, v: Tensor | None = None, top: float = TOP) -> Tensor:
    """The exact expectation of A for a random position in place of argmax u: near 5 %, above it for short sentences.

    All tied positions of v [..., L] count as top; without v the value is ceil(5 % L) / L. The result for the positions
    `kept` [..., L] is [...] float64, NaN for rows without positions.

    >>> random_agreement(torch.ones(14, dtype=torch.bool)).item()
    0.07142857142857142
    """
    places = torch.arange(kept.shape[-1], device=kept.device).expand(kept.shape)
    scores = places.double() if v is None else v
    return in_top(scores, kept, top=top).sum(-1).double() / kept.sum(-1)


@dataclass(frozen=True)
class Contextualized:
    """xi: performance of a second training run when its attention agrees equally well."""

    performance: (
        float  # of the second run at this step; its final one if it never agrees as well (starred in the paper)
    )
    step: int | None  # first step with a larger agreement, None if there is none


def contextualized_agreement(
    value: float, agreements: Mapping[int, float], performances: Mapping[int, float]
) -> Contextualized:
    """xi(u, v): performance of a second seed at its first step with A(alpha, alpha^) > A(u, v) (eq. 11).

    `value` is A(u, v); `agreements` compares the first run's final attention with the second run's, by step.

    >>> contextualized_agreement(0.3, {0: 0.1, 50: 0.3, 100: 0.4}, {0: 0.01, 50: 0.2, 100: 0.35})
    Contextualized(performance=0.35, step=100)
    """
    if not agreements or set(agreements) != set(performances):
        problem = f"have the steps {sorted(agreements)} and {sorted(performances)}"
        raise InputError("agreements, performances", None, problem, "give both for the same steps, at least one")
    step = next((step for step in sorted(agreements) if agreements[step] > value), None)
    return Contextualized(performances[max(performances) if step is None else step], step)


def _check(kept: Tensor | None, **scores: Tensor) -> Tensor:
    shapes = {name: list(z.shape) for name, z in scores.items()} | ({} if kept is None else {"kept": list(kept.shape)})
    if len(set(map(tuple, shapes.values()))) > 1 or not all(shapes.values()):
        named = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InputError(named, None, "all must have the same shape [..., L]")
    first = next(iter(scores.values()))
    kept = torch.ones_like(first, dtype=torch.bool) if kept is None else kept.bool()
    for name, z in scores.items():
        if (z.isnan() & kept).any():
            raise InputError(name, None, "has NaN at kept positions", "check its origin")
    return kept
