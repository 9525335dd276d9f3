"""Point-wise information of the source: log P(y | x) - log P(y | empty source)."""

import numpy as np

from hf_nmt_interp.analysis.signals.base import Signal
from hf_nmt_interp.analysis.signals.reading import Reading, by_word

_LITTLE = 0.5  # nats


def information(reading: Reading) -> np.ndarray:
    """[T] log P(y_t | x, y_<t) - log P(y_t | empty source, y_<t), in nats."""
    return reading.log_probs - reading.empty


class Information(Signal):
    """Total over the translation, in nats."""

    name, passes = "information", ("cross", "empty")

    @staticmethod
    def score(reading: Reading) -> float:
        return float(information(reading).sum())


class MeanInformation(Signal):
    """Mean over the target tokens."""

    name, passes = "mean_information", ("cross", "empty")

    @staticmethod
    def score(reading: Reading) -> float:
        return float(information(reading).mean())


class SourceInformation(Signal):
    """Total divided by the number of source tokens."""

    name, passes = "source_information", ("cross", "empty")

    @staticmethod
    def score(reading: Reading) -> float:
        return float(information(reading).sum() / len(reading.pair.ids.source_ids))


class InformationShare(Signal):
    """1 - log P(y | x) / log P(y | empty source): the share of the surprisal that the source removes."""

    name, passes = "information_share", ("cross", "empty")

    @staticmethod
    def score(reading: Reading) -> float:
        return float(1 - reading.log_probs.sum() / min(reading.empty.sum(), -1e-6))


class LowestInformation(Signal):
    """Lowest information about a word."""

    name, passes = "lowest_information", ("cross", "empty")

    @staticmethod
    def score(reading: Reading) -> float:
        return float(by_word(information(reading), reading.pair.target).min(initial=0))


class UninformedWords(Signal):
    """Share of the target words about which the source has less than 0.5 nats of information."""

    name, passes, rises = "uninformed_words", ("cross", "empty"), True

    @staticmethod
    def score(reading: Reading) -> float:
        words = by_word(information(reading), reading.pair.target)
        return float((words < _LITTLE).mean()) if len(words) else 0.0
