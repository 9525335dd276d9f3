"""A logistic combination of signals for each kind of error, and thresholds with their measured false-alarm rates.

Definitions: docs/methods.md, Checking a translation.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hf_nmt_interp.analysis.signals import SIGNALS
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.files import write_whole

SHIPPED = Path(__file__).with_name("checks.json")


@dataclass(frozen=True)
class Threshold:
    """A threshold, and how often it was right and wrong on labelled lines.

    Attributes:
        threshold: scores above it, or measures of words below it, are reported.
        false_alarms: share of the good lines (or their words) that are reported.
        found: share of the bad lines (or their words) that are reported.
        good: number of good lines or words.
        bad: number of bad lines or words.
    """

    threshold: float
    false_alarms: float
    found: float
    good: int
    bad: int


@dataclass(frozen=True)
class Detector:
    """P(error) = sigmoid(bias + sum of weight (signal - mean) / deviation), and its threshold.

    Attributes:
        weights: weight of each signal.
        means: mean of each signal on the labelled lines.
        deviations: standard deviation of each signal on the labelled lines.
        bias: constant term of the sum.
        limit: threshold of P; its rates are cross-validated.
    """

    weights: dict[str, float]
    means: dict[str, float]
    deviations: dict[str, float]
    bias: float
    limit: Threshold

    def score(self, signals: Mapping[str, float]) -> float:
        """P(error) of a translation with these signals."""
        total = self.bias + sum(
            weight * (signals[name] - self.means[name]) / self.deviations[name]
            for name, weight in self.weights.items()
        )
        return float(1 / (1 + np.exp(-np.clip(total, -500, 500))))


@dataclass(frozen=True)
class Combination:
    """The fitted combination that `check` uses.

    Attributes:
        about: the data it was fitted on: model, file of labels, number of lines.
        detectors: one for each kind of error: detached, omission, repetition.
        coverage: source words with a smoothed attention coverage below it are untranslated.
        information: target words with a smoothed information below it have no support.
        clause: lines with a clause in which the coverage of every source word is below it omit that clause; None in
            files that do not have it.
    """

    about: dict[str, Any]
    detectors: dict[str, Detector]
    coverage: Threshold
    information: Threshold
    clause: Threshold | None = None

    def save(self, path: str | Path) -> None:
        """Write the combination as JSON."""
        write_whole(Path(path), json.dumps(asdict(self), indent=1, allow_nan=False) + "\n", shared=True)

    @classmethod
    def load(cls, path: str | Path) -> "Combination":
        """Read a file written by `save`."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            detectors = {
                kind: Detector(**{**one, "limit": Threshold(**one["limit"])})
                for kind, one in found["detectors"].items()
            }
            words = {
                name: Threshold(**found[name]) for name in ("coverage", "information", "clause") if found.get(name)
            }
            unknown = {name for one in detectors.values() for name in one.weights} - SIGNALS.keys()
            if unknown:
                raise ValueError(f"unknown signal {min(unknown)}")
            return cls(found["about"], detectors, **words)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"is not a file of fitted weights ({type(error).__name__}: {error})"
            raise InputError("weights", str(path), problem, "check-table --save writes one") from error


@cache
def shipped() -> Combination:
    """The bundled combination."""
    return Combination.load(SHIPPED)
