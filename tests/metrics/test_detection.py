"""Figures of detection against counting."""

import numpy as np
import pytest

from hf_nmt_interp.metrics.detection import auroc, bootstrap, calibration_error, precision_at_recall


def values(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 5, 30).astype(float), generator.integers(0, 4, 20).astype(float)


def test_auroc_against_counting() -> None:
    positive, negative = values()
    wins = [(p > n) + 0.5 * (p == n) for p in positive for n in negative]
    assert auroc(positive, negative) == pytest.approx(np.mean(wins))


def test_precision_at_recall_is_that_of_the_highest_threshold_that_finds_enough() -> None:
    positive, negative = values(1)
    able = [t for t in range(5) if np.mean(positive >= t) >= 0.9]
    right, wrong = np.sum(positive >= max(able)), np.sum(negative >= max(able))
    assert precision_at_recall(positive, negative) == right / (right + wrong)


def test_the_interval_surrounds_the_figure_and_is_seeded() -> None:
    low, high = bootstrap(auroc, *values())
    assert 0 < low < auroc(*values()) < high < 1
    assert bootstrap(auroc, *values()) == (low, high)
    assert bootstrap(auroc, *values(), seed=1) != (low, high)


def test_calibration_error_is_0_for_right_probabilities_only() -> None:
    labels = np.arange(100) % 4 == 0
    assert calibration_error(np.full(100, 0.25), labels, bins=1) == 0
    assert calibration_error(np.full(100, 0.75), labels, bins=1) == 0.5
