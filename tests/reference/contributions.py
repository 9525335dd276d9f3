"""Contribution statistics of one sentence (voita2021, sections 2.3, 4 and 7), number by number in Python's floats.

`source[t][i]` and `prefix[t][j]` are the contributions of x_i and y_j to step t, `start[t]` that of the start token.
"""

import math

Matrix = list[list[float]]


def source_contribution(source: Matrix, prefix: Matrix) -> list[float]:
    """R_t(source), with R_t(source) + R_t(target) = 1 (section 2.3)."""
    return [sum(x) / (sum(x) + sum(y)) for x, y in zip(source, prefix, strict=True)]


def source_part(source: Matrix, prefix: Matrix, start: list[float]) -> list[float]:
    """The same with the start token as a part of the target, as the authors' code has it."""
    return [sum(x) / (sum(x) + sum(y) + s) for x, y, s in zip(source, prefix, start, strict=True)]


def position_influence(source: Matrix) -> list[float]:
    """S / T times the sum over t of R_t(x_k) / R_t(source), for each source position k (section 4.1)."""
    S, T = len(source[0]), len(source)
    return [S / T * sum(source[t][k] / sum(source[t]) for t in range(T)) for k in range(S)]


def entropies(contributions: Matrix) -> list[float]:
    """Entropy of {R_t(x_i) / R_t(source)} or {R_t(y_j) / R_t(target)} at each step (section 4.2); NaN without any."""
    found = []
    for row in contributions:
        p = [x / sum(row) for x in row if x > 0]
        found.append(-sum(x * math.log(x) for x in p) if p else math.nan)
    return found


def influence_kl(model: tuple[Matrix, Matrix], final: tuple[Matrix, Matrix], least: float = 1e-12) -> list[float]:
    """D(p || q) of (R_t(x_1), ..., R_t(x_S), R_t(y_1), ..., R_t(y_t-1)) at each step (section 7).

    p belongs to the model in training, q to the final model, both scaled to sum 1; q is at least `least`.
    """
    found = []
    for t in range(len(model[0])):
        p, q = ([*source[t], *prefix[t][:t]] for source, prefix in (model, final))
        total = 0.0
        for a, b in zip(p, q, strict=True):
            if a > 0:
                total += a / sum(p) * math.log(a / sum(p) / max(b / sum(q), least))
        found.append(total)
    return found
