"""Agreement metrics of Snell et al. 2021, section 3.1, slow and literal, for lists of numbers."""

import math
from fractions import Fraction


def agreement(u: list[float], v: list[float], top: str = "0.05") -> int:
    """A(u, v) = 1[|{j | v_j > v_argmax u}| < 5% L] (eq. 10), the first of several highest positions."""
    best = 0
    for i in range(len(u)):
        if u[i] > u[best]:
            best = i
    above = [j for j in range(len(v)) if v[j] > v[best]]
    return int(len(above) < Fraction(top) * len(v))


def random_agreement(v: list[float], top: str = "0.05") -> float:
    """The mean of A over vectors u that are 1 at one position and 0 elsewhere."""
    choices = [[float(i == j) for i in range(len(v))] for j in range(len(v))]
    return sum(agreement(u, v, top) for u in choices) / len(v)


def contextualized(value: float, agreements: dict[int, float], performances: dict[int, float]) -> float:
    """p^(inf {tau | A(alpha, alpha^(tau)) > A(u, v)}) (eq. 11); where the set is empty, the last performance."""
    steps = [step for step in agreements if agreements[step] > value]
    return performances[min(steps)] if steps else performances[max(performances)]


def kendall_tau_a(x: list[float], y: list[float]) -> float:
    """(concordant - discordant) / pairs."""
    total, pairs = 0, 0
    for i in range(len(x)):
        for j in range(i):
            total += ((x[i] > x[j]) - (x[i] < x[j])) * ((y[i] > y[j]) - (y[i] < y[j]))
            pairs += 1
    return total / pairs if pairs else math.nan
