"""Source share of the translation by ALTI+ and by LRP, and its minimum over words; the first step's is always 1."""

import numpy as np

from hf_nmt_interp.analysis.signals.base import Signal
from hf_nmt_interp.analysis.signals.reading import Reading


def _mean(shares: np.ndarray) -> float:
    return float(shares[1:].mean()) if len(shares) > 1 else 1.0


def _lowest(shares: np.ndarray, reading: Reading) -> float:
    """Minimum over words of the mean share of their tokens after the first step."""
    places = ([n for n in own if n] for own in reading.pair.target.positions)
    return min((float(shares[own].mean()) for own in places if own), default=1.0)


class AltiShare(Signal):
    """Mean source contribution by ALTI+."""

    name, passes = "alti_share", ("alti",)

    @staticmethod
    def score(reading: Reading) -> float:
        return _mean(reading.alti)


class AltiMinimum(Signal):
    """Lowest source contribution of a word by ALTI+."""

    name, passes = "alti_minimum", ("alti",)

    @staticmethod
    def score(reading: Reading) -> float:
        return _lowest(reading.alti, reading)


class LrpShare(Signal):
    """Mean source contribution by LRP."""

    name, passes, on_request = "lrp_share", ("lrp",), True

    @staticmethod
    def score(reading: Reading) -> float:
        return _mean(reading.lrp)


class LrpMinimum(Signal):
    """Lowest source contribution of a word by LRP."""

    name, passes, on_request = "lrp_minimum", ("lrp",), True

    @staticmethod
    def score(reading: Reading) -> float:
        return _lowest(reading.lrp, reading)
