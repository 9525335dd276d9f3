"""Attention weights that would minimise the loss (snell2021, appendix A.1); definitions: docs/methods.md."""

import torch
from torch import Tensor

from hf_nmt_interp.errors import InputError

_HALVINGS = 40  # bisections of the interval that contains the best step length


@torch.no_grad()
def optimal_attention(
    gamma: Tensor, labels: Tensor, kept: Tensor | None = None, *, steps: int = 1000, tolerance: float = 1e-8
) -> Tensor:
    """alpha_opt: the weights that minimise L = -log softmax(sum_l alpha_l gamma_l)_y (eq. 26 to 30, 32 to 36).

    The loss is convex in alpha. Each step moves weight from the kept position whose gradient is highest to the one
    whose gradient is lowest, by the amount that lowers the loss most, until no weights can lower it by more than the
    tolerance, or after `steps` steps.

    Args:
        gamma: [..., L, V] logits with all attention on position l, e.g. of `lexical_probe(..., vocabulary=True)` of a
            translator with `output="linear"`, whose logits are linear in alpha; gamma_l includes the decoder state.
        labels: [...] the correct words y.
        kept: [..., L] which positions exist; None for all.
        steps: maximum number of steps.
        tolerance: tolerance of the loss.

    Returns:
        [..., L] weights, 0 where not kept.

    >>> gamma = torch.tensor([[0.0, 0, 0], [0, -10, 5], [0, 5, -10]])  # eq. 29
    >>> [round(weight, 4) for weight in optimal_attention(gamma, torch.tensor(0)).tolist()]
    [0.0, 0.5, 0.5]
    """
    kept = torch.ones(gamma.shape[:-1], dtype=torch.bool, device=gamma.device) if kept is None else kept.bool()
    if gamma.ndim < 2 or labels.shape != gamma.shape[:-2] or kept.shape != gamma.shape[:-1]:
        shapes = f"gamma {list(gamma.shape)}, labels {list(labels.shape)}, kept {list(kept.shape)}"
        raise InputError(shapes, None, "do not match", "give [..., L, V], [...] and [..., L]")
    if not kept.any(-1).all():
        raise InputError("kept", None, "has a row without positions", "leave it out")
    z = gamma.double().reshape(-1, *gamma.shape[-2:])  # [N, L, V]
    z = z - z.gather(-1, labels.reshape(-1, 1, 1).expand(-1, z.shape[1], -1))  # the label's logit is 0 (eq. 34)
    kept_rows = kept.reshape(-1, kept.shape[-1])
    alpha = kept_rows.double() / kept_rows.sum(-1, keepdim=True)
    found, left = alpha.clone(), torch.arange(len(z), device=z.device)  # rows that are not done yet
    for _ in range(steps):
        slopes = (z @ _probabilities(alpha, z)[..., None])[..., 0]  # dL / d alpha [N, L]
        lowest, to = slopes.masked_fill(~kept_rows, torch.inf).min(-1)
        going = (alpha * slopes).sum(-1) - lowest > tolerance  # how much lower L could be at most
        if not going.all():
            found[left] = alpha
            left, alpha, z, kept_rows, slopes, to = (x[going] for x in (left, alpha, z, kept_rows, slopes, to))
        if not len(left):
            break
        source, rows = slopes.masked_fill(alpha <= 0, -torch.inf).argmax(-1), torch.arange(len(z), device=z.device)
        amount = _best_amount(alpha, z, source, to)
        alpha[rows, source] -= amount
        alpha[rows, to] += amount
    found[left] = alpha
    return found.view(kept.shape)


def _probabilities(alpha: Tensor, z: Tensor) -> Tensor:
    """[N, V] from weights [N, L] and logits [N, L, V]."""
    return (alpha[:, None] @ z)[:, 0].softmax(-1)


def _best_amount(alpha: Tensor, z: Tensor, source: Tensor, to: Tensor) -> Tensor:
    """The weight [N] to move between two positions that lowers the loss most, by bisection of its derivative."""
    rows = torch.arange(len(z), device=z.device)
    logits, direction = (alpha[:, None] @ z)[:, 0], z[rows, to] - z[rows, source]  # [N, V]

    def falls(amount: Tensor) -> Tensor:
        return ((logits + amount[:, None] * direction).softmax(-1) * direction).sum(-1) < 0

    low, high = torch.zeros_like(alpha[:, 0]), alpha[rows, source]
    whole = falls(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        lower = falls(middle)
        low, high = torch.where(lower, middle, low), torch.where(lower, high, middle)
    return torch.where(whole, alpha[rows, source], low)
