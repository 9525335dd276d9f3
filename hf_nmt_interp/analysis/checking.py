"""`check`: does a translation say what its source says? Definitions: docs/methods.md, Checking a translation."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from hf_nmt_interp.analysis.combination import Combination, Threshold, shipped
from hf_nmt_interp.analysis.own_attention import AttentionChoice
from hf_nmt_interp.analysis.signals import SIGNALS, chosen_signals
from hf_nmt_interp.analysis.signals.coverage import AttentionCoverage, attention_coverage
from hf_nmt_interp.analysis.signals.information import Information, information
from hf_nmt_interp.analysis.signals.reading import Reading, by_word, clauses, is_mark, read, smoothed
from hf_nmt_interp.decoding.pairs import SHOWN, Pairs, Text
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import TokenWords

OMITTED_CLAUSE = "omitted_clause"  # a kind of error that needs no combination: a clause without a covered word


@dataclass(frozen=True)
class Verdict:
    """One kind of error in one line.

    Attributes:
        score: P(error) by the fitted combination; of `omitted_clause`, 1 - `clause_maximum`.
        found: whether it is above the threshold.
        threshold: threshold of the score.
        false_alarms: share of the labelled good lines that are above the threshold, cross-validated; of
            `omitted_clause`, of the lines that its threshold was fitted on.
    """

    score: float
    found: bool
    threshold: float
    false_alarms: float


@dataclass(frozen=True)
class Check:
    """The findings for one sentence pair.

    Attributes:
        source: words of the source.
        target: words of the translation, given or generated.
        target_text: the translation.
        verdicts: by kind of error: detached, omission, repetition, omitted_clause; only those whose signals were
            computed.
        untranslated: source words that are not translated.
        unsupported: target words without support in the source.
        untranslated_text: untranslated words as phrases.
        unsupported_text: unsupported words as phrases.
        signals: values by name.
        omitted: with `contrastive_conditioning`, the words and clauses of the source without which the translation is
            more likely, and by how many nats.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> found = hni.check(model, tokenizer, "She has a red car.", "Heute regnet es in Berlin.")
    >>> found.found, found.target
    (['detached'], ['Heute', 'regnet', 'es', 'in', 'Berlin', '.'])
    """

    source: list[str]
    target: list[str]
    target_text: str
    verdicts: dict[str, Verdict]
    untranslated: list[int]
    unsupported: list[int]
    untranslated_text: list[str]
    unsupported_text: list[str]
    signals: dict[str, float]
    omitted: dict[str, float]

    @property
    def found(self) -> list[str]:
        """Kinds of errors that were found."""
        return [kind for kind, verdict in self.verdicts.items() if verdict.found]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


@overload
def check(
    model: Any,
    tokenizer: Any,
    sources: str,
    targets: str | None = None,
    signals: Iterable[str] | None = None,
    weights: Any = None,
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    choice: AttentionChoice | None = None,
) -> Check: ...
@overload
def check(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Text],
    targets: Sequence[Text] | None = None,
    signals: Iterable[str] | None = None,
    weights: Any = None,
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    choice: AttentionChoice | None = None,
) -> list[Check]: ...
@takes_names
def check(
    model: Any,
    tokenizer: Any,
    sources: Any,
    targets: Any = None,
    signals: Iterable[str] | None = None,
    weights: Any = None,
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    choice: AttentionChoice | None = None,
) -> Any:
    """Check translations for text detached from the source, omissions and repetitions, and list the words.

    Args:
        model: a translator, not necessarily the one that translated; or a name that is passed to `load` (further
            arguments of `load` are then accepted too).
        tokenizer: its tokenizer; None with a name.
        sources: one sentence, or a list of sentences.
        targets: its translation or a list of them; None lets the model translate.
        signals: names of `SIGNALS`, `default` for all that need no more than three forward passes, `all` for all.
        weights: a `Combination` or its file, from `check-table --save`; None for the bundled one.
        batch_size: sentences processed at a time.
        generate: arguments of `model.generate()`, if the model translates.
        choice: the attention used to align, if already known.

    Returns:
        One `Check` for one sentence, a list for a list.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> found = hni.check(model, tokenizer, "She has a red car.", "Heute regnet es in Berlin.")
    >>> found.verdicts["detached"].found, found.unsupported_text
    (True, ['Heute regnet es in Berlin.'])
    """
    if isinstance(signals, str):
        raise InputError("signals", signals, "is not a list of names", f"give [{signals!r}]")
    names = chosen_signals(signals)
    combination = weights if isinstance(weights, Combination) else load_weights(weights)
    single = isinstance(sources, str)
    if isinstance(targets, str) and not single:
        raise InputError("targets", targets, "is one sentence for a list of sources", "give a list of targets")
    sources, targets = ([sources], None if targets is None else [targets]) if single else (sources, targets)
    pairs = Pairs.make(model, tokenizer, sources, targets, SHOWN, batch_size=batch_size, generate=generate)
    passes = [name for signal in names for name in SIGNALS[signal].passes]
    found = [judge(reading, names, combination) for reading in read(model, pairs, passes, batch_size, choice)]
    return found[0] if single else found


def load_weights(weights: str | Path | None) -> Combination:
    """The combination in a file, or the bundled one."""
    return shipped() if weights is None else Combination.load(weights)


def judge(reading: Reading, names: Sequence[str], combination: Combination) -> Check:
    """The verdicts on a reading with these signals."""
    signals = {name: SIGNALS[name].score(reading) for name in names}
    verdicts = {}
    for kind in kinds(names, combination):
        if kind == OMITTED_CLAUSE and (limit := combination.clause):
            score, threshold = 1 - clause_maximum(reading), 1 - limit.threshold
        else:
            detector = combination.detectors[kind]
            score, limit, threshold = detector.score(signals), detector.limit, detector.limit.threshold
        verdicts[kind] = Verdict(score, score > threshold, threshold, limit.false_alarms)
    source, target = reading.pair.source, reading.pair.target
    missing: list[int] = []
    alone: list[int] = []
    if AttentionCoverage.name in signals:
        missing = _low(source_coverage(reading), source, combination.coverage)
    if Information.name in signals:
        alone = _low(target_information(reading), target, combination.information)
    phrases = _phrases(missing, source), _phrases(alone, target)
    parts = {" ".join(source.words[p.first : p.end]): p.gain for p in reading.parts or () if p.gain > 0}
    return Check(source.words, target.words, target.text, verdicts, missing, alone, *phrases, signals, parts)


def kinds(names: Sequence[str], combination: Combination) -> list[str]:
    """Kinds of errors that signals of these names can find."""
    found = [kind for kind, detector in combination.detectors.items() if detector.weights.keys() <= set(names)]
    return found + [OMITTED_CLAUSE] * bool(combination.clause and AttentionCoverage.name in names)


def clause_maximum(reading: Reading) -> float:
    """Least over the clauses of the source of the largest smoothed coverage of a word; 1 without words."""
    values = source_coverage(reading)
    found = [values[first:end] for first, end in clauses(reading.pair.source.words)]
    return float(min((np.nanmax(own) for own in found if np.isfinite(own).any()), default=1.0))


def source_coverage(reading: Reading) -> np.ndarray:
    """[source words] smoothed attention coverage; NaN for punctuation."""
    return smoothed(attention_coverage(reading), reading.pair.source.words)


def target_information(reading: Reading) -> np.ndarray:
    """[target words] smoothed information of the source; NaN for punctuation."""
    return smoothed(by_word(information(reading), reading.pair.target), reading.pair.target.words)


def _low(values: np.ndarray, side: TokenWords, limit: Threshold) -> list[int]:
    """Words below a threshold, and the punctuation after them."""
    low = values < limit.threshold
    for n, word in enumerate(side.words):
        if is_mark(word) and n:
            low[n] = low[n - 1]
    return np.flatnonzero(low).tolist()


def _phrases(words: Sequence[int], side: TokenWords) -> list[str]:
    """Neighbouring words as one text."""
    runs: list[list[int]] = []
    for n in words:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return [side.cut(run[0], run[-1] + 1) for run in runs]
