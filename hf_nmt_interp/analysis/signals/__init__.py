"""Signals that something is wrong with a translation, by name.

Definitions: docs/methods.md, Checking a translation.
"""

from collections.abc import Iterable

from hf_nmt_interp.analysis.signals.base import Signal
from hf_nmt_interp.analysis.signals.contrastive import ContrastiveConditioning
from hf_nmt_interp.analysis.signals.coverage import (
    AlignmentConfidence,
    AlignmentCoverage,
    AttentionCoverage,
    ClauseCoverage,
    LowestCoverage,
)
from hf_nmt_interp.analysis.signals.information import (
    Information,
    InformationShare,
    LowestInformation,
    MeanInformation,
    SourceInformation,
    UninformedWords,
)
from hf_nmt_interp.analysis.signals.length import CharacterRatio, LengthRatio
from hf_nmt_interp.analysis.signals.likelihood import Ending, LogProbability, LowestLogProbability
from hf_nmt_interp.analysis.signals.repetition import RepeatedNgrams, TopNgram
from hf_nmt_interp.analysis.signals.shares import AltiMinimum, AltiShare, LrpMinimum, LrpShare
from hf_nmt_interp.errors import check_choice

SIGNALS: dict[str, type[Signal]] = {
    signal.name: signal
    for signal in (
        LogProbability, LowestLogProbability, Ending, Information, MeanInformation, SourceInformation,
        InformationShare, LowestInformation, UninformedWords, AltiShare, AltiMinimum, LrpShare, LrpMinimum,
        AlignmentCoverage, ClauseCoverage, AttentionCoverage, LowestCoverage, AlignmentConfidence,
        ContrastiveConditioning, RepeatedNgrams, TopNgram, LengthRatio, CharacterRatio,
    )
}  # fmt: skip
DEFAULT, ALL = "default", "all"  # those that are not on request; every one


def chosen_signals(names: Iterable[str] | None = None) -> list[str]:
    """Names of signals, each once; None and `default` select those that are not on request, `all` selects all.

    >>> chosen_signals(["length_ratio", "lrp_share"])
    ['length_ratio', 'lrp_share']
    >>> "lrp_share" in chosen_signals()
    False
    """
    groups = {DEFAULT: [name for name, signal in SIGNALS.items() if not signal.on_request], ALL: list(SIGNALS)}
    found: list[str] = []
    for name in [DEFAULT] if names is None else names:
        check_choice("signals", name, (*SIGNALS, *groups))
        found += groups.get(name, [name])
    return list(dict.fromkeys(found))
