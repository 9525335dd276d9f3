"""Expected risk word by word from voita2021, appendix B, in Python's floats."""

import math


def unique(samples: list[list[int]], reference: list[int] | None) -> list[list[int]]:
    """The reference, then each sample that has not come before."""
    found: list[list[int]] = [] if reference is None else [list(reference)]
    for sample in samples:
        if list(sample) not in found:
            found.append(list(sample))
    return found


def sharpened(log_probs: list[float], alpha: float, lengths: list[int] | None = None) -> list[float]:
    """P~(y) = P(y)^alpha / sum_y' P(y')^alpha; with lengths P(y)^(alpha / |y|)."""
    powers = []
    for i, log_prob in enumerate(log_probs):
        exponent = alpha if lengths is None else alpha / lengths[i]
        powers.append(math.exp(log_prob) ** exponent)
    return [power / sum(powers) for power in powers]


def risk(log_probs: list[float], risks: list[float], alpha: float, lengths: list[int] | None = None) -> float:
    """R = sum_y P~(y) Delta(y)."""
    return sum(p * delta for p, delta in zip(sharpened(log_probs, alpha, lengths), risks, strict=True))


def risk_gradient(log_probs: list[float], risks: list[float], alpha: float, lengths: list[int] | None = None):
    """d R / d log P(y) by central differences."""
    found = []
    for i in range(len(log_probs)):
        step = 1e-5
        up, down = (
            risk([p + sign * step * (j == i) for j, p in enumerate(log_probs)], risks, alpha, lengths)
            for sign in (1, -1)
        )
        found.append((up - down) / (2 * step))
    return found
