"""Which source words the translation covers, by alignment and by attention, without punctuation."""

import numpy as np

from hf_nmt_interp.analysis.signals.base import Signal
from hf_nmt_interp.analysis.signals.reading import Reading, clauses, is_mark, smoothed


def alignment_coverage(reading: Reading) -> np.ndarray:
    """[source words] max over target words of the soft link p(i | t)."""
    return reading.links.max(0, initial=0)


def attention_coverage(reading: Reading) -> np.ndarray:
    """[source words] min(1, sum over target words of p(i | t)), attention averaged over layers and heads."""
    return np.minimum(1, reading.attention.sum(0))


def _mean(coverage: np.ndarray, reading: Reading, first: int = 0, end: int | None = None) -> float:
    """Mean over the words [first, end) that are not punctuation; 1 if there are none."""
    kept = [
        c for c, word in list(zip(coverage, reading.pair.source.words, strict=True))[first:end] if not is_mark(word)
    ]
    return float(np.mean(kept)) if kept else 1.0


class AlignmentCoverage(Signal):
    """Mean over source words of `alignment_coverage`."""

    name, passes = "alignment_coverage", ("cross",)

    @staticmethod
    def score(reading: Reading) -> float:
        return _mean(alignment_coverage(reading), reading)


class ClauseCoverage(Signal):
    """Lowest mean of `alignment_coverage` over a clause, a run between punctuation marks."""

    name, passes = "clause_coverage", ("cross",)

    @staticmethod
    def score(reading: Reading) -> float:
        coverage = alignment_coverage(reading)
        return min((_mean(coverage, reading, *span) for span in clauses(reading.pair.source.words)), default=1.0)


class AttentionCoverage(Signal):
    """Mean over source words of `attention_coverage`."""

    name, passes = "attention_coverage", ("cross",)

    @staticmethod
    def score(reading: Reading) -> float:
        return _mean(attention_coverage(reading), reading)


class LowestCoverage(Signal):
    """Lowest `attention_coverage` of a word, smoothed over its neighbours."""

    name, passes = "lowest_coverage", ("cross",)

    @staticmethod
    def score(reading: Reading) -> float:
        found = smoothed(attention_coverage(reading), reading.pair.source.words)
        return float(np.nanmin(found)) if np.isfinite(found).any() else 1.0


class AlignmentConfidence(Signal):
    """Mean over target words of their best soft link."""

    name, passes = "alignment_confidence", ("cross",)

    @staticmethod
    def score(reading: Reading) -> float:
        best = reading.links.max(1, initial=0)
        return float(best.mean()) if len(best) else 1.0
