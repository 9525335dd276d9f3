"""Expected risk over a set of candidates as pure functions (voita2021, appendix B).

Definitions: docs/methods.md, Minimum risk training and word dropout.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def candidate_set(samples: Iterable[Sequence[int]], reference: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """S(x): the unique candidates in the order of their first appearance, after the reference, if given.

    >>> candidate_set([[5, 0], [6, 0], [5, 0], [7, 0]], reference=[7, 0])
    [(7, 0), (5, 0), (6, 0)]
    """
    first = [] if reference is None else [tuple(reference)]
    return list(dict.fromkeys([*first, *map(tuple, samples)]))


def candidate_probabilities(log_probs: Tensor, kept: Tensor, alpha: float, lengths: Tensor | None = None) -> Tensor:
    """P~(y|x) = P(y|x)^alpha / sum over S(x) of P(y'|x)^alpha [B, C]; with lengths [B, C], P(y|x)^(alpha / length).

    `log_probs` are log P(y|x) [B, C]; `kept` [B, C] is false where a set has fewer candidates than C, and P~ is 0.

    >>> candidate_probabilities(torch.tensor([[0.5, 0.25, 0.1]]).log(), torch.tensor([[True, True, False]]), alpha=1.0)
    tensor([[0.6667, 0.3333, 0.0000]])
    """
    scores = alpha * log_probs if lengths is None else alpha * log_probs / lengths.clamp(min=1)
    return scores.masked_fill(~kept, -torch.inf).softmax(-1)


def expected_risk(probabilities: Tensor, risks: Tensor) -> Tensor:
    """R = sum over S(x) of P~(y|x) Delta(y), for each source.

    Risks [B, C] are relative to the first one of the set: if all are equal, the gradient is exactly 0, without
    rounding errors that Adam would scale up. Where P~ [B, C] is 0, they may have any finite value.

    >>> expected_risk(torch.tensor([[0.75, 0.25]]), torch.tensor([[-1.0, 0.0]]))
    tensor([-0.7500])
    """
    first = risks[:, 0]
    return first + (probabilities * (risks - first[:, None])).sum(-1)


def risk_weights(
    log_probs: list[list[float]], risks: list[list[float]], alpha: float, lengths: list[list[int]] | None = None
) -> tuple[Tensor, list[list[float]], Tensor]:
    """R [B], d R / d log P and P~ [B, C] from log P(y|x), Delta and numbers of tokens of sets of any size, in float64.

    d R / d log P(y|x) = alpha P~(y|x) (Delta(y) - R), by automatic differentiation.

    >>> risk_weights([[-1.0, -1.0]], [[-1.0, 0.0]], alpha=1.0)[:2]
    (tensor([-0.5000], dtype=torch.float64), [[-0.25, 0.25]])
    """
    size = max(map(len, log_probs))

    def table(rows: Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor([[*row, *[0.0] * (size - len(row))] for row in rows], dtype=torch.double)

    scores = table(log_probs).requires_grad_()
    kept = table([[1.0] * len(row) for row in log_probs]).bool()
    with torch.enable_grad():
        shares = candidate_probabilities(scores, kept, alpha, None if lengths is None else table(lengths))
        risk = expected_risk(shares, table(risks))
        (weights,) = torch.autograd.grad(risk.sum(), scores)
    by_set = [row[: len(found)] for row, found in zip(weights.tolist(), log_probs, strict=True)]
    return risk.detach(), by_set, shares.detach()
