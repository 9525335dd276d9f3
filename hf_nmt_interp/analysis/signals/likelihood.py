"""How likely the translation is."""

import numpy as np

from hf_nmt_interp.analysis.signals.base import Signal
from hf_nmt_interp.analysis.signals.reading import Reading, by_word


class LogProbability(Signal):
    """Mean over tokens of log P(y_t | x, y_<t), EOS included."""

    name, passes = "log_probability", ("cross",)

    @staticmethod
    def score(reading: Reading) -> float:
        return float(np.mean(reading.log_probs))


class LowestLogProbability(Signal):
    """Lowest log P of a word given the source and the words before it."""

    name, passes = "lowest_log_probability", ("cross",)

    @staticmethod
    def score(reading: Reading) -> float:
        return float(by_word(reading.log_probs, reading.pair.target).min(initial=0))


class Ending(Signal):
    """log P(y_T | x, y_<T) of the last token, EOS: low if something is not translated yet."""

    name, passes = "ending", ("cross",)

    @staticmethod
    def score(reading: Reading) -> float:
        return float(reading.log_probs[-1])
