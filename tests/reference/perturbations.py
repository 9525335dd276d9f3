"""Integrated gradients and occlusion, slow and literal: one point, one token, one step at a time."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.reference.layers import as_scores
from tests.reference.saliency import score_of, take_apart
from tests.reference.shift import shifted_right


def score(logits: Tensor, label: int, kind: str, other: int | None = None, reference: Tensor | None = None) -> Tensor:
    """What is explained at a step, from its logits [V]; `reference` are those after another prefix."""
    if kind == "entropy":
        return -(logits.softmax(-1) * logits.log_softmax(-1)).sum()
    if kind == "kl":
        return (logits.softmax(-1) * (logits.log_softmax(-1) - reference.log_softmax(-1))).sum()
    found = score_of(logits, torch.tensor(label), kind)
    return found if other is None else found - score_of(logits, torch.tensor(other), kind)


def take(model: PreTrainedModel, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Callable, Tensor, Tensor]:
    """Embeddings of the source and of the decoder's input, logits from them, and both tables."""
    source, target, logits_of = take_apart(model)
    return source[input_ids], target[shifted_right(model, labels[None])[0]], logits_of, source, target


def gauss_legendre(n: int) -> list[tuple[float, float]]:
    """Points and weights on [0, 1]: the roots of the Legendre polynomial P_n, weights 2 / ((1 - x^2) P_n'(x)^2)."""
    polynomial = np.polynomial.Legendre.basis(n)
    slope = polynomial.deriv()
    return [((x + 1) / 2, 1 / ((1 - x * x) * slope(x) ** 2)) for x in polynomial.roots()]


def integrated_gradients(
    model: PreTrainedModel,
    input_ids: Tensor,
    labels: Tensor,
    points: list[tuple[float, float]],
    baseline: int | None = None,
    kind: str = "log_probability",
    others: Tensor | None = None,
    path: str = "all",
) -> dict[str, Tensor]:
    """(E - E') times the integral of the gradient along the way; `gap` of the sum [T]; `baseline` None is 0."""
    source, decoder, logits_of, table, target_table = take(model, input_ids, labels)
    base = torch.zeros_like(source) if baseline is None else table[baseline].expand_as(source)
    start = torch.zeros_like(decoder) if baseline is None else target_table[baseline].expand_as(decoder)
    if path == "source":
        start = decoder
    T = len(labels)
    found, gaps = torch.zeros(T, len(source) + T, dtype=torch.float64), torch.zeros(T, dtype=torch.float64)

    def value(x: Tensor, y: Tensor, t: int) -> Tensor:
        other = None if others is None or others[t] == labels[t] else int(others[t])
        if others is not None and other is None:
            return x.sum() * 0 + y.sum() * 0
        return score(logits_of(x, y)[t], int(labels[t]), kind, other)

    for t in range(T):
        for a, weight in points:
            x = (base + a * (source - base)).detach().requires_grad_()
            y = (start + a * (decoder - start)).detach().requires_grad_()
            g = torch.autograd.grad(value(x, y, t), (x, y))
            found[t] += weight * torch.cat([(g[0] * (source - base)).sum(-1), (g[1] * (decoder - start)).sum(-1)])
        gaps[t] = (found[t].sum() - (value(source, decoder, t) - value(base, start, t))).abs()
    return as_scores(found[:, : len(source)], found[:, len(source) :]) | {"gap": gaps}


def occlusion(
    model: PreTrainedModel,
    input_ids: Tensor,
    labels: Tensor,
    how: str = "mask",
    baseline: int | None = None,
    kind: str = "log_probability",
    source_units: list[list[int]] | None = None,
    decoder_units: list[list[int]] | None = None,
) -> dict[str, Tensor]:
    """score(whole) - score(without a unit), unit by unit; each token of a unit gets an even part."""
    source, decoder, logits_of, table, target_table = take(model, input_ids, labels)
    S, T = len(input_ids), len(labels)
    found = {"source": torch.zeros(T, S, dtype=torch.float64), "decoder": torch.zeros(T, T, dtype=torch.float64)}
    sides = {
        "source": (source_units or [[i] for i in range(S)], table),
        "decoder": (decoder_units or [[i] for i in range(T)], target_table),
    }
    for t in range(T):
        whole = score(logits_of(source, decoder[: t + 1])[t], int(labels[t]), kind)
        for side, (units, vectors) in sides.items():
            for unit in units:
                both = {"source": source, "decoder": decoder[: t + 1]}
                gone = [i for i in unit if i < len(both[side])]
                if not gone or (how == "delete" and len(gone) == len(both[side])):
                    continue
                if how == "delete":
                    both[side] = both[side][[i for i in range(len(both[side])) if i not in gone]]
                else:
                    both[side] = both[side].clone()
                    both[side][gone] = 0 if baseline is None else vectors[baseline]
                rest = score(logits_of(both["source"], both["decoder"])[-1], int(labels[t]), kind)
                found[side][t, gone] = (whole - rest) / len(gone)
    return as_scores(found["source"], found["decoder"])
