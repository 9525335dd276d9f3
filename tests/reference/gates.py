"""Hard Concrete gates in plain math, formula by formula (Louizos et al. 2018; Voita et al. 2019, section 6)."""

import math


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def gate(u: float, log_alpha: float, temperature: float, low: float, high: float) -> float:
    """The gate that the uniform number u draws."""
    s = sigmoid((math.log(u) - math.log(1 - u) + log_alpha) / temperature)
    return min(1.0, max(0.0, s * (high - low) + low))


def gradient(u: float, log_alpha: float, temperature: float, low: float, high: float) -> float:
    """d gate / d log_alpha."""
    g = gate(u, log_alpha, temperature, low, high)
    if g in (0.0, 1.0):
        return 0.0
    s = (g - low) / (high - low)
    return (high - low) * s * (1 - s) / temperature


def concrete_cdf(s: float, log_alpha: float, temperature: float) -> float:
    """P(S <= s) of the binary Concrete variable on (0, 1)."""
    return sigmoid(temperature * (math.log(s) - math.log(1 - s)) - log_alpha)


def p_zero(log_alpha: float, temperature: float, low: float, high: float) -> float:
    return concrete_cdf((0 - low) / (high - low), log_alpha, temperature)


def p_one(log_alpha: float, temperature: float, low: float, high: float) -> float:
    return 1 - concrete_cdf((1 - low) / (high - low), log_alpha, temperature)


def penalty(log_alphas: list[float], temperature: float, low: float, high: float) -> float:
    return sum(1 - p_zero(log_alpha, temperature, low, high) for log_alpha in log_alphas)


def expectation(log_alpha: float, temperature: float, low: float, high: float) -> float:
    """E[g], summed over x = logit(u), which has the logistic density."""
    step = 1e-3
    total = 0.0
    for i in range(-40_000, 40_001):
        u = sigmoid(i * step)
        if 0 < u < 1:
            total += gate(u, log_alpha, temperature, low, high) * u * (1 - u) * step
    return total


def test_value(log_alpha: float, temperature: float, low: float, high: float) -> float:
    return 1.0 if p_one(log_alpha, temperature, low, high) >= p_zero(log_alpha, temperature, low, high) else 0.0
