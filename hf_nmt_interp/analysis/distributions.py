"""Entropy, divergence and rank correlation of distributions over the last dimension of tensors."""

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
