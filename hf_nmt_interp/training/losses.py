"""Losses as pure functions of tensors."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from hf_nmt_interp.decoding.precision import product_dtype

_ROWS = 256  # rows of logits in memory at a time: 256 x 8,000 floats fit into the cache


class _LinearCrossEntropy(torch.autograd.Function):
    """Weighted sum over rows of the smoothed cross entropy of `hidden @ weight.T + bias`, with its gradients."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, labels, smoothing, row_weights, dtype):
        vocabulary = weight.shape[0]
        weight_, bias_ = weight.to(dtype), bias.to(dtype)  # unchanged, unless products are narrower
        total = hidden.new_zeros(())
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None  # none if it is frozen
        for start in range(0, len(hidden), _ROWS):
            cut = slice(start, start + _ROWS)
            x, gold = hidden[cut], labels[cut, None]
            z = torch.addmm(bias_, x.to(dtype), weight_.T).to(x.dtype)  # [rows, V]
            log_sum = z.logsumexp(-1, keepdim=True)
            loss = log_sum - (1 - smoothing) * z.gather(-1, gold) - smoothing * z.mean(-1, keepdim=True)  # [rows, 1]
            total += loss.sum() if row_weights is None else loss[:, 0] @ row_weights[cut]
            # d loss / d z = softmax(z) - (1 - smoothing) onehot - smoothing / V
            z.sub_(log_sum).exp_().sub_(smoothing / vocabulary)
            z.scatter_add_(-1, gold, torch.full_like(gold, smoothing - 1, dtype=z.dtype))
            z = z.to(dtype)
            grad_hidden[cut] = z @ weight_
            if row_weights is not None:  # on the smaller side of both products
                grad_hidden[cut] *= row_weights[cut, None]
                x = x * row_weights[cut, None]
            if grad_weight is not None:
                grad_weight += z.T @ x.to(dtype)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad, None if grad_weight is None else grad_weight * grad, None, None, None, None, None


def label_smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross entropy with uniform smoothing (Vaswani et al. 2017) of logits [..., V], summed over labels except -100.

    >>> label_smoothed_cross_entropy(torch.zeros(1, 2, 4), torch.tensor([[3, -100]]), 0.1).exp().round().item()
    4.0
    """
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=smoothing, reduction="sum")


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float = 0.0, position_weights: Any = None
) -> Tensor:
    """`label_smoothed_cross_entropy(hidden @ weight.T + bias, labels)` without storing all logits.

    hidden is [..., d], weight [V, d], bias [V] (gets no gradient), labels [...] (-100 is ignored); `position_weights`
    [...] are constant weights of the losses, or None. Products respect `NarrowProducts`.
    """
    kept = labels != -100
    rows = None if position_weights is None else position_weights[kept]
    return _LinearCrossEntropy.apply(hidden[kept], weight, bias, labels[kept], smoothing, rows, product_dtype(weight))


def l0_loss(cross_entropy: Tensor, open_heads: Tensor, weight: float) -> Tensor:
    """Cross entropy + lambda L_C (voita2019, section 6.1), L_C the sum over the gates of 1 - P(g = 0)."""
    return cross_entropy + weight * open_heads


def mask_distance(masks: Sequence[Tensor], labels: Tensor) -> Tensor:
    """Sum over labelled steps of ||1 - m||_2, norm over the source, mean over layers and heads (lu2021, eq. 6).

    The masks m of each layer are [B, H, T, S], 1 at padding; labels are [B, T], -100 is ignored.

    >>> mask_distance([torch.tensor([[[[0.4, 0.2, 1.0]]]])], torch.tensor([[7]])).item()
    1.0
    """
    by_step = torch.stack([(1 - mask).norm(dim=-1).mean(1) for mask in masks]).mean(0)  # [B, T]
    return by_step.masked_fill(labels == -100, 0).sum()


def global_mask_distance(masks: Sequence[Tensor], labels: Tensor) -> Tensor:
    """One norm ||1 - m||_2 over all layers, heads, sentences, steps and source tokens / source length (their code).

    Like a sum over steps, it is still to be divided by the number of target tokens.

    Args:
        masks: m of each layer [B, H, T, S], 1 at padding.
        labels: [B, T], -100 is ignored.

    >>> global_mask_distance([torch.tensor([[[[0.4, 0.2, 1.0, 1.0]]]])], torch.tensor([[7]])).item()
    0.25
    """
    steps = (labels != -100)[:, None, :, None]  # [B, 1, T, 1]
    return torch.stack([(1 - mask) * steps for mask in masks]).norm() / masks[0].shape[-1]


PENALTIES = {"step": mask_distance, "global": global_mask_distance}


def mask_loss(perturbed_cross_entropy: Tensor, distance: Tensor, alpha: float) -> Tensor:
    """The loss of the mask network: -L_NMT under perturbed weights + alpha ||1 - m||_2 (lu2021, eq. 5)."""
    return alpha * distance - perturbed_cross_entropy


def ramp(step: int, warmup: int) -> float:
    """A factor that grows from 0 to 1 in `warmup` steps, counted from 1.

    >>> [ramp(step, warmup=4) for step in (1, 2, 4, 9)], ramp(1, warmup=0)
    ([0.25, 0.5, 1.0, 1.0], 1.0)
    """
    return min(1.0, step / warmup) if warmup else 1.0


def link_mass_loss(soft: Tensor, links: Tensor) -> Tensor:
    """-sum over target tokens with links of log sum_s A[t, s] links[t, s]: the mass on linked source tokens.

    `soft`, A, and `links`, 0 or 1, are [B, T, S]; tokens without links are ignored.

    >>> link_mass_loss(torch.tensor([[[0.25, 0.25, 0.5]]]), torch.tensor([[[1, 1, 0]]])).exp()
    tensor(2.)
    """
    linked = links.any(-1)  # [B, T]
    return -(soft * links).sum(-1)[linked].clamp(min=torch.finfo(soft.dtype).tiny).log().sum()


def link_cross_entropy(soft: Tensor, links: Tensor) -> Tensor:
    """-sum over target tokens with links of sum_s p[t, s] log A[t, s], p the links / their number (Garg 2019).

    `soft`, A, and `links`, 0 or 1, are [B, T, S]; tokens without links are ignored.

    >>> link_cross_entropy(torch.tensor([[[0.25, 0.25, 0.5]]]), torch.tensor([[[1, 1, 0]]])).exp()
    tensor(4.)
    """
    p = links / links.sum(-1, keepdim=True).clamp(min=1)
    return -(p * soft.clamp(min=torch.finfo(soft.dtype).tiny).log()).sum()


LINK_LOSSES = {"mass": link_mass_loss, "even": link_cross_entropy}


def agreement_loss(forward: Tensor, backward: Tensor) -> Tensor:
    """Squared distance of two directions' soft links, sum of (A[t, s] - B[s, t])^2; padding is 0 in both.

    `forward`, A, is [B, T, S]; `backward`, B, from the other translator, is [B, S, T].

    >>> agreement_loss(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.5], [0.5]]])).item()
    0.5
    """
    return (forward - backward.transpose(1, 2)).square().sum()
