"""Results of a translator's passes over sentence pairs, as input for signals.

Definitions: docs/methods.md, Checking a translation.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from hf_nmt_interp.analysis.links import normalise, word_scores
from hf_nmt_interp.analysis.own_attention import AttentionChoice, cross_weights, own_attention
from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.registry import make_method, word_settings
from hf_nmt_interp.decoding.batch import evaluating, label_log_probs, run_model
from hf_nmt_interp.decoding.pairs import Pair, Pairs
from hf_nmt_interp.models.families import any_parts
from hf_nmt_interp.text.tokens import TokenWords

_MARK = re.compile(r"[^\w\s]+")
_NOT_READ: Any = None
_NO_WORDS = TokenWords([], [], [], [])
_WINDOW = 2  # words on each side


class Part(NamedTuple):
    """Words [first, end) of a source, and how much more likely the translation is without them, in nats."""

    first: int
    end: int
    gain: float


@dataclass(frozen=True, eq=False)
class Reading:
    """A sentence pair and the results of passes over it; None for a pass that was not run.

    Attributes:
        pair: ids and words.
        log_probs: [T] log P(y_t | x, y_<t).
        links: [target words, source words] p(i | t) of the default aligner.
        attention: [target words, source words] p(i | t) by the mean over all layers and heads.
        empty: [T] log P(y_t | empty source, y_<t).
        alti: [T] source contribution by ALTI+.
        lrp: [T] source contribution by LRP.
        parts: parts of the source, each left out in turn.
    """

    pair: Pair
    log_probs: np.ndarray = _NOT_READ
    links: np.ndarray = _NOT_READ
    attention: np.ndarray = _NOT_READ
    empty: np.ndarray = _NOT_READ
    alti: np.ndarray = _NOT_READ
    lrp: np.ndarray = _NOT_READ
    parts: list[Part] = _NOT_READ


def is_mark(word: str) -> bool:
    """Whether a word is punctuation only.

    >>> is_mark("..."), is_mark("don't")
    (True, False)
    """
    return bool(_MARK.fullmatch(word))


def clauses(words: Sequence[str]) -> list[tuple[int, int]]:
    """Runs [first, end) of words including the punctuation after them.

    >>> clauses(["It", "rains", ",", "he", "said", "."])
    [(0, 3), (3, 6)]
    """
    ends = [
        n + 1 for n, word in enumerate(words) if is_mark(word[-1:]) and not is_mark((*words, "")[n + 1][:1] or "x")
    ]
    ends = [end for end in ends if any(not is_mark(word) for word in words[:end])]
    starts = [0, *ends]
    if not ends or ends[-1] < len(words):
        ends = [*ends, len(words)]
    return [(first, end) for first, end in zip(starts, ends, strict=False) if first < end]


def by_word(values: np.ndarray, side: TokenWords) -> np.ndarray:
    """[words] sums of values [tokens]; special tokens are left out."""
    return np.array([values[own].sum() for own in side.positions])


def smoothed(values: np.ndarray, words: Sequence[str]) -> np.ndarray:
    """[words] mean over each word, and up to two words before and after it in its clause; NaN for punctuation.

    >>> smoothed(np.array([0.0, 3.0, 9.0, 1.0]), ["It", "rains", ",", "today"]).tolist()
    [1.5, 1.5, nan, 1.0]
    """
    found = np.full(len(words), np.nan)
    for first, end in clauses(words):
        kept = [n for n in range(first, end) if not is_mark(words[n])]
        for place, n in enumerate(kept):
            found[n] = values[kept[max(0, place - _WINDOW) : place + _WINDOW + 1]].mean()
    return found


def _log_probs(model: Any, pairs: Pairs, batch_size: int) -> list[np.ndarray]:
    """Log-probabilities [T] of the labels of each pair."""
    found: dict[int, np.ndarray] = {}
    for rows, batch in pairs.batches(batch_size, "Reading"):
        with torch.no_grad(), evaluating(model):
            values = label_log_probs(run_model(model, batch.inputs()).logits, batch.labels).cpu().double().numpy()
        found |= {row: values[b, : len(pairs[row].ids.target_ids)] for b, row in enumerate(rows)}
    return [found[row] for row in range(len(pairs))]


def aligner(model: Any, pairs: Pairs, batch_size: int = 16) -> AttentionChoice:
    """The model's own best attention; an arbitrary one for pairs without words, which have no links."""
    full = pairs.pick([n for n, pair in enumerate(pairs) if pair.source.words and pair.target.words])
    return own_attention(model, full, batch_size) if len(full) else AttentionChoice(0, None, False, 1.0)


def _cross(
    model: Any, pairs: Pairs, batch_size: int, choice: AttentionChoice | None = None
) -> Iterator[dict[str, Any]]:
    """One pass: log-probabilities and the attention of all layers."""
    parts, choice = any_parts(model), choice or aligner(model, pairs, batch_size)
    found: dict[int, dict[str, Any]] = {}
    for rows, batch in pairs.batches(batch_size, "Reading"):
        logits, weights = cross_weights(model, parts, batch)
        T = batch.labels.shape[1]
        log_probs = label_log_probs(logits[:, :T], batch.labels).cpu().double().numpy()
        own = weights[choice.layer % (1 + max(layer for layer, _ in weights)), choice.head]
        mean = torch.stack([of for (_, head), of in weights.items() if head is None]).mean(0)
        soft = {"links": own[:, choice.shifted : choice.shifted + T], "attention": mean[:, :T]}
        arrays = {name: values.cpu().double().numpy() for name, values in soft.items()}
        for b, row in enumerate(rows):
            ids, sides = pairs[row].ids, (pairs[row].source, pairs[row].target)
            S, T_b = len(ids.source_ids), len(ids.target_ids)
            found[row] = {"log_probs": log_probs[b, :T_b]}
            found[row] |= {name: normalise(word_scores(x[b, :T_b, :S], *sides)) for name, x in arrays.items()}
    return (found[row] for row in range(len(pairs)))


def without(pair: Pair, gone: Iterable[int]) -> Pair:
    """The pair without some source words; special tokens are kept, and EOS if nothing else is left."""
    positions, ids = {n for word in gone for n in pair.source.positions[word]}, pair.ids
    kept = [n for n, _ in enumerate(ids.source_ids) if n not in positions]
    return replace(pair, ids=replace(ids, source_ids=[ids.source_ids[n] for n in kept]), source=_NO_WORDS)


def _empty(model: Any, pairs: Pairs, batch_size: int) -> Iterator[dict[str, Any]]:
    """One pass: log-probabilities with a source of special tokens only."""
    emptied = replace(pairs, items=[without(pair, range(len(pair.source.words))) for pair in pairs])
    return ({"empty": values} for values in _log_probs(model, emptied, batch_size))


Pass = Callable[[Any, Pairs, int], Iterator[dict[str, Any]]]


def _shares(name: str) -> Pass:
    """One pass of an attribution method that divides a total."""

    def shares(model: Any, pairs: Pairs, batch_size: int) -> Iterator[dict[str, Any]]:
        results = explain(make_method(model, name, **word_settings(name, {})), pairs, batch_size)
        return ({name: result.source_contribution.astype(np.float64)} for result in results)

    return shares


def _parts(model: Any, pairs: Pairs, batch_size: int) -> Iterator[dict[str, Any]]:
    """One pass for each word and each clause of the source, which is left out."""
    spans = []
    for pair in pairs:
        own = [(n, n + 1) for n, places in enumerate(pair.source.positions) if places]
        every = dict.fromkeys([*own, *clauses(pair.source.words)])
        spans.append([span for span in every if span != (0, len(pair.source.words))])
    rows = [without(pair, range(*span)) for pair, own in zip(pairs, spans, strict=True) for span in own]
    sums = iter([values.sum() for values in _log_probs(model, replace(pairs, items=rows), batch_size)])
    for whole, own in zip(_log_probs(model, pairs, batch_size), spans, strict=True):
        yield {"parts": [Part(*span, float(next(sums) - whole.sum())) for span in own]}


PASSES: dict[str, Pass] = {
    "cross": _cross,
    "empty": _empty,
    "alti": _shares("alti"),
    "lrp": _shares("lrp"),
    "parts": _parts,
}


def read(
    model: Any, pairs: Pairs, passes: Iterable[str], batch_size: int = 16, choice: AttentionChoice | None = None
) -> list[Reading]:
    """Readings of sentence pairs with these passes; `choice` is the attention used to align."""
    found: list[dict[str, Any]] = [{} for _ in pairs]
    for name in dict.fromkeys(passes):
        more: Pass = partial(_cross, choice=choice) if name == "cross" else PASSES[name]
        for own, new in zip(found, more(model, pairs, batch_size), strict=True):
            own |= new
    return [Reading(pair, **own) for pair, own in zip(pairs, found, strict=True)]
