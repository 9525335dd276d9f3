"""Contrastive conditioning for omissions (Vamvas and Sennrich 2022)."""

from hf_nmt_interp.analysis.signals.base import Signal
from hf_nmt_interp.analysis.signals.reading import Reading


class ContrastiveConditioning(Signal):
    """Max over words and clauses c of the source of log P(y | x without c) - log P(y | x): above 0, c is omitted."""

    name, passes, rises, on_request = "contrastive_conditioning", ("parts",), True, True

    @staticmethod
    def score(reading: Reading) -> float:
        return max((part.gain for part in reading.parts or ()), default=0.0)
