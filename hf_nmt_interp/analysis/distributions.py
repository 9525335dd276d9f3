"""Entropy, divergence and rank correlation of distributions over the last dimension; intervals of means."""

import numpy as np
import torch
from torch import Tensor

from hf_nmt_interp.errors import check_choice


def entropy(p: Tensor) -> Tensor:
    """-sum p log p over the last dimension, in nats.

    >>> entropy(torch.tensor([0.5, 0.5, 0.0])).exp().item()
    2.0
    """
    return -torch.xlogy(p, p).sum(-1)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """JSD = (KL[p || mean] + KL[q || mean]) / 2 over the last dimension, in nats (eq. 12).

    >>> jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])).exp().item()
    2.0
    """
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


def kendall_tau(x: Tensor, y: Tensor, kept: Tensor, variant: str = "b") -> Tensor:
    """Kendall's tau of x and y [..., S] where `kept` [..., S] is True; NaN if there are no pairs.

    Variant "b" divides by the root of pairs that x orders times pairs that y orders, "a" by all pairs.

    >>> kendall_tau(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0]), torch.ones(3).bool()).item()
    0.3333333432674408
    """
    check_choice("variant", variant, ("a", "b"))
    pairs = kept[..., :, None] & kept[..., None, :]
    first, second = (torch.sign(z[..., :, None] - z[..., None, :]) * pairs for z in (x, y))  # [..., S, S]
    total = (first * second).sum((-2, -1))
    if variant == "a":
        n = kept.sum(-1)
        return total / (n * (n - 1))
    ordered = (first != 0).sum((-2, -1)) * (second != 0).sum((-2, -1))
    return total / ordered.to(x.dtype).sqrt()


def bootstrap_means(values: Tensor, groups: Tensor, samples: int = 1000) -> np.ndarray:
    """Means [samples] of numbers [N] over bootstrap samples of their groups [N], e.g. sentences (seed 0).

    NaN are left out. Numbers with the same groups get the same samples, so their means can be combined. A single group
    says nothing about others: all means are NaN.

    >>> bootstrap_means(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([4, 4, 7]), samples=3).round(2)
    array([0.  , 0.67, 1.  ])
    """
    names, own = groups.unique(return_inverse=True)
    known = ~values.isnan()
    sums = [np.bincount(own[known], weights, len(names)) for weights in (values[known].double(), None)]
    if len(names) < 2:
        return np.full(samples, np.nan)
    totals, counts = bootstrap_sums(np.stack(sums, 1), samples).T
    return np.divide(totals, counts, out=np.full(samples, np.nan), where=counts > 0)


def bootstrap_sums(rows: np.ndarray, samples: int = 1000) -> np.ndarray:
    """Sums [samples, ...] of rows [N, ...] drawn with replacement, N for each sample (seed 0)."""
    generator = np.random.default_rng(0)
    return np.stack([rows[generator.integers(len(rows), size=len(rows))].sum(0) for _ in range(samples)])


def half_interval(means: np.ndarray) -> float | None:
    """Half the 95 % interval of means over bootstrap samples; NaN are left out, None if all are NaN."""
    if np.isnan(means).all():
        return None
    low, high = np.nanquantile(means, (0.025, 0.975))
    return float(high - low) / 2
