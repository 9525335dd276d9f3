"""Label-smoothed cross entropy and the Noam rate, word by word from the papers, in Python's floats."""

import math


def smoothed_cross_entropy(logits: list[list[float]], labels: list[int], smoothing: float) -> float:
    """-sum_i sum_v q_i(v) log p_i(v), q = (1 - smoothing) onehot(label) + smoothing / V (Szegedy et al. 2016, sec. 7).

    Args:
        logits: one row of V numbers for each position.
        labels: one for each position; -100 is left out.
        smoothing: mass spread evenly.
    """
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        if label == -100:
            continue
        normaliser = sum(math.exp(z) for z in row)
        for v, z in enumerate(row):
            q = smoothing / len(row) + (1 - smoothing) * (v == label)
            total -= q * math.log(math.exp(z) / normaliser)
    return total


def linear_logits(hidden: list[list[float]], weight: list[list[float]], bias: list[float]) -> list[list[float]]:
    """z_iv = sum_k h_ik W_vk + b_v."""
    return [
        [sum(h * w for h, w in zip(row, column, strict=True)) + b for column, b in zip(weight, bias, strict=True)]
        for row in hidden
    ]


def noam(step: int, scale: float, warmup: int, d_model: int) -> float:
    """Linear up to `warmup`, then as the inverse square root of the step (voita2019, appendix B)."""
    if step < warmup:
        return scale / math.sqrt(d_model) * step / (warmup * math.sqrt(warmup))
    return scale / math.sqrt(d_model) / math.sqrt(step)
