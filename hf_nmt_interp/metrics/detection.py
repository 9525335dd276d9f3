"""How well a score detects bad items: area under the ROC curve, precision at a recall, intervals, calibration.

Definitions: docs/methods.md, Checking a translation.
"""

from collections.abc import Callable

import numpy as np

primary, greater_is_better = "auroc", True


def auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Probability that a positive scores above a negative, ties counting one half.

    >>> auroc(np.array([3.0, 2.0]), np.array([1.0, 2.0]))
    0.875
    """
    order = np.sort(negative)
    below, at_most = (np.searchsorted(order, positive, side) for side in ("left", "right"))
    return float((below + at_most).mean() / 2 / len(negative))


def precision_at_recall(positive: np.ndarray, negative: np.ndarray, recall: float = 0.9) -> float:
    """Precision at the highest threshold that reaches this recall.

    >>> precision_at_recall(np.array([3.0, 2.0]), np.array([1.0, 2.0]), 0.9)
    0.6666666666666666
    """
    threshold = np.sort(positive)[::-1][int(np.ceil(recall * len(positive))) - 1]
    right, wrong = int((positive >= threshold).sum()), int((negative >= threshold).sum())
    return right / (right + wrong)


def bootstrap(
    figure: Callable[[np.ndarray, np.ndarray], float],
    positive: np.ndarray,
    negative: np.ndarray,
    samples: int = 200,
    seed: int = 0,
) -> tuple[float, float]:
    """95 % bootstrap interval of a metric: positives and negatives are each resampled with replacement."""
    generator = np.random.default_rng(seed)
    found = [
        figure(*(generator.choice(values, len(values)) for values in (positive, negative))) for _ in range(samples)
    ]
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 10) -> float:
    """Mean over bins of equal size of |mean probability - share of positives|; bins are ordered by probability.

    >>> calibration_error(np.array([0.2, 0.4, 0.9, 0.9]), np.array([False, True, True, True]), bins=2)
    0.15
    """
    parts = np.array_split(np.argsort(probabilities, kind="stable"), bins)
    gaps = [abs(probabilities[part].mean() - labels[part].mean()) * len(part) for part in parts if len(part)]
    return float(np.sum(gaps).round(12) / len(probabilities))
