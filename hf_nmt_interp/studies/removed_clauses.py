"""Artificial omissions: a clause is removed from a good translation; which of its source words are flagged?

Definitions: docs/methods.md, Checking a translation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_nmt_interp.analysis.checking import clause_maximum, source_coverage
from hf_nmt_interp.analysis.combination import shipped
from hf_nmt_interp.analysis.links import extract_links
from hf_nmt_interp.analysis.signals.reading import Reading, aligner, clauses, is_mark, read
from hf_nmt_interp.decoding.pairs import SHOWN, Pairs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.detection import auroc
from hf_nmt_interp.text.tokens import TokenWords

_LEAST = 3  # minimum words of the removed clause, and of the rest


@dataclass(frozen=True)
class RemovedClauses:
    """How many removed words were flagged; shares are from 0 to 1.

    Attributes:
        sentences: number of sentences with a clause that can be removed.
        words: number of source words that are linked only to removed words.
        threshold: smoothed coverage below which `false_alarms` of the words of complete pairs lie.
        false_alarms: that share.
        found: share of the removed words below the threshold.
        found_lines: share of the sentences with at least one such word.
        auroc: AUROC of removed words against all words of complete pairs.
        shipped: rates of words, and of lines with an omitted clause, at the bundled thresholds.
    """

    sentences: int
    words: int
    threshold: float
    false_alarms: float
    found: float
    found_lines: float
    auroc: float
    shipped: dict[str, float]

    def markdown(self) -> str:
        """The figures as a Markdown table."""
        rows = {
            "sentences": f"{self.sentences:,}",
            "removed source words": f"{self.words:,}",
            f"of them flagged at {100 * self.false_alarms:.1f} % false alarms, %": f"{100 * self.found:.1f}",
            "sentences with one flagged, %": f"{100 * self.found_lines:.1f}",
            "AUROC, %": f"{100 * self.auroc:.1f}",
            "flagged by the threshold in the package, %": f"{100 * self.shipped['found']:.1f}",
            "its false alarms here, %": f"{100 * self.shipped['false_alarms']:.1f}",
        }
        titles = {"found_clauses": "verdict omitted_clause, %", "false_clauses": "the same for whole translations, %"}
        rows |= {titles[name]: f"{100 * value:.1f}" for name, value in self.shipped.items() if name in titles}
        return "\n".join(
            ["| figure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
        )


def removed_clauses(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[tuple[str, str]],
    batch_size: int = 16,
    seed: int = 0,
    false_alarms: float = 0.05,
) -> RemovedClauses:
    """Remove a random clause from every translation that is long enough, and flag source words."""
    generator = np.random.default_rng(seed)
    encoded = Pairs.force(model, tokenizer, [x for x, _ in pairs], [y for _, y in pairs], SHOWN)
    choice = aligner(model, encoded, batch_size)
    spans = [_clause(pair.target, generator) for pair in encoded]
    kept = [n for n, span in enumerate(spans) if span]
    if not kept:
        raise InputError("targets", None, "no translation has a clause that can be removed", "give longer ones")
    whole = read(model, encoded.pick(kept), ["cross"], batch_size, choice)
    texts = [_without(encoded[n].target, *(spans[n] or (0, 0))) for n in kept]
    cut = read(
        model, Pairs.force(model, tokenizer, [pairs[n][0] for n in kept], texts, SHOWN), ["cross"], batch_size, choice
    )
    gone = [_removed(reading, spans[n] or (0, 0)) for n, reading in zip(kept, whole, strict=True)]
    scores = [source_coverage(reading)[own] for reading, own in zip(cut, gone, strict=True)]
    good = np.concatenate([source_coverage(reading) for reading in whole])
    good, bad = good[~np.isnan(good)], np.concatenate(scores)
    threshold, own = float(np.quantile(good, false_alarms)), shipped().coverage.threshold
    lines = [(values < threshold).any() for values in scores if len(values)]
    rates = {"threshold": own, "found": float((bad < own).mean()), "false_alarms": float((good < own).mean())}
    if limit := shipped().clause:
        for name, readings in (("found_clauses", cut), ("false_clauses", whole)):
            rates[name] = float(np.mean([clause_maximum(reading) < limit.threshold for reading in readings]))
    found = float((bad < threshold).mean()), float(np.mean(lines)), auroc(-bad, -good)
    return RemovedClauses(len(kept), len(bad), threshold, float((good < threshold).mean()), *found, rates)


def _clause(target: TokenWords, generator: np.random.Generator) -> tuple[int, int] | None:
    """A random clause with enough words, outside of which enough words remain."""
    full = np.array([not is_mark(word) for word in target.words])
    able = [
        (first, end)
        for first, end in clauses(target.words)
        if full[first:end].sum() >= _LEAST and full.sum() - full[first:end].sum() >= _LEAST
    ]
    return able[generator.integers(len(able))] if able else None


def _without(target: TokenWords, first: int, end: int) -> str:
    """The text without the words [first, end)."""
    return f"{target.cut(0, first)} {target.cut(end, len(target.words))}".strip()


def _removed(reading: Reading, span: tuple[int, int]) -> list[int]:
    """Source words, without punctuation marks, that are linked only to words in the span."""
    links = extract_links(np.where(reading.links > 0, reading.links, -np.inf))
    inside = {i for i, j in links if span[0] <= j < span[1]}
    return sorted(inside - {i for i, j in links if not span[0] <= j < span[1]} - _marks(reading.pair.source))


def _marks(side: TokenWords) -> set[int]:
    return {n for n, word in enumerate(side.words) if is_mark(word)}
