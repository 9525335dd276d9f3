"""Contributions over a data set (voita2021); definitions: docs/methods.md, Contribution statistics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.errors import InputError


def contribution_entropy(contributions: np.ndarray) -> np.ndarray:
    """Entropy (nats) of each row, normalised to sum 1; NaN for a row without mass.

    >>> contribution_entropy(np.array([[2.0, 2.0], [1.0, 0.0]])).round(4).tolist()
    [0.6931, 0.0]
    """
    if (contributions < 0).any():
        raise InputError("contributions", None, "some are negative; entropies need a method without signs, e.g. lrp")
    mass = contributions.sum(-1, keepdims=True)
    p = np.divide(contributions, mass, out=np.full_like(contributions, np.nan), where=mass != 0)
    return 0.0 - np.where(p == 0, 0, p * np.log(np.where(p == 0, 1, p))).sum(-1)


def position_influence(result: AttributionResult) -> np.ndarray:
    """[S], total influence of source position k: (S / T) sum_t source[t, k] / sum_i source[t, i]; its mean is 1."""
    T, S = result.source.shape
    return S / T * (result.source / result.source.sum(-1, keepdims=True)).sum(0)


STATISTICS: dict[str, Callable[[AttributionResult], np.ndarray]] = {
    "source_contribution": lambda result: result.source_contribution,  # [T]
    "source_part": lambda result: result.source_part,  # [T], the start token in the total, as in voita2021's figures
    "source_entropy": lambda result: contribution_entropy(result.source),  # [T], how many tokens contribute to a step
    "prefix_entropy": lambda result: contribution_entropy(result.prefix),  # [T], NaN at the first step (no prefix)
    "position_influence": position_influence,  # [S]
}


@dataclass(frozen=True)
class Curve:
    """Mean by position over a data set, with a 95 % confidence interval."""

    mean: np.ndarray
    low: np.ndarray  # mean - 1.96 standard errors; too narrow for fewer than 10 sentences
    high: np.ndarray
    count: np.ndarray  # sentences that have a value at the position

    def rows(self) -> list[dict[str, Any]]:
        """Position, mean, low, high and sentences, for positions with sentences."""
        columns = {"mean": self.mean, "low": self.low, "high": self.high, "sentences": self.count}
        at = np.flatnonzero(self.count).tolist()
        return [{"position": n} | {name: column[n].item() for name, column in columns.items()} for n in at]


def mean_curve(rows: Iterable[np.ndarray]) -> Curve:
    """Mean at each position of rows of any length; NaN values are ignored.

    >>> mean_curve([np.array([1.0, 2.0]), np.array([3.0])]).mean.tolist()
    [2.0, 2.0]
    """
    running = RunningCurve()
    for row in rows:
        running.add(row)
    return running.curve()


class RunningCurve:
    """Mean by position of rows added one by one (Welford's sums), in the memory of one row."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = np.zeros((3, 0))

    def add(self, row: np.ndarray) -> None:
        """Add a row [any length]; NaN values are ignored."""
        if (more := len(row) - len(self.count)) > 0:
            self.count, self.mean, self.squares = (np.pad(a, (0, more)) for a in (self.count, self.mean, self.squares))
        at = np.flatnonzero(~np.isnan(row))
        self.count[at] += 1
        change = row[at] - self.mean[at]
        self.mean[at] += change / self.count[at]
        self.squares[at] += change * (row[at] - self.mean[at])

    def curve(self) -> Curve:
        """Mean and confidence interval by position."""
        if not len(self.count):
            raise InputError("results", None, "none given", "the mean needs at least one sentence")
        n = self.count
        mean = np.where(n > 0, self.mean, np.nan)
        # the standard error needs two sentences
        error = np.sqrt(np.divide(self.squares, n * (n - 1), out=np.full(len(n), np.nan), where=n > 1))
        return Curve(mean, mean - 1.96 * error, mean + 1.96 * error, n.astype(int))


def contribution_curves(results: Iterable[AttributionResult]) -> dict[str, Curve]:
    """Means of `STATISTICS` by position, over the sentences that are long enough; the papers use a single length."""
    running = {name: RunningCurve() for name in STATISTICS}
    for result in results:
        for name, statistic in STATISTICS.items():
            running[name].add(statistic(result))
    return {name: curve.curve() for name, curve in running.items()}
