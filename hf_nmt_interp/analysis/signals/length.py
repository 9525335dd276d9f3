"""Length of the translation."""

import math

from hf_nmt_interp.analysis.signals.base import Signal
from hf_nmt_interp.analysis.signals.reading import Reading


class LengthRatio(Signal):
    """log of target tokens / source tokens."""

    name, passes = "length_ratio", ()

    @staticmethod
    def score(reading: Reading) -> float:
        return math.log(len(reading.pair.ids.target_ids) / len(reading.pair.ids.source_ids))


class CharacterRatio(Signal):
    """log of (1 + target characters) / (1 + source characters)."""

    name, passes = "character_ratio", ()

    @staticmethod
    def score(reading: Reading) -> float:
        return math.log((1 + len(reading.pair.target.text)) / (1 + len(reading.pair.source.text)))
