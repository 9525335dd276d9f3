"""Explanations as plain data: JSON objects, rows of scores, the source word of each target word."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hf_nmt_interp.attribution.base import AttributionMethod
from hf_nmt_interp.attribution.registry import METHODS
from hf_nmt_interp.attribution.result import AttributionResult

RELIANT = 0.7  # below this source share, the earlier words of the translation are shown


def record(result: AttributionResult, digits: int = 7) -> dict[str, Any]:
    """A result as a JSON object; numbers are rounded to significant digits, undefined ones are None.

    `source_tokens` and `target_tokens` name rows and columns of the arrays: subwords, or words after `to_words()`.
    """
    found: dict[str, Any] = {"method": result.method, "settings": result.settings, "level": result.level}
    for name, side in (("source", result.source_side), ("target", result.target_side)):
        found |= {f"{name}_{part}": getattr(side, part) for part in ("tokens", "words", "word_ids", "special")}
    for name in ("chosen", "contrast"):
        if getattr(result, name) is not None:
            found[name] = getattr(result, name)
    arrays = ("source", "prefix", "start", "source_contribution", "log_probs", "conservation_gap")
    found |= {name: plain(getattr(result, name), digits) for name in arrays}
    return found if result.links is None else found | {"links": sorted(map(list, result.links))}


def plain(values: Any, digits: int = 7) -> Any:
    """The array as nested lists of Python numbers: rounded to significant digits, None where not finite.

    >>> plain(np.array([[1 / 3, np.nan]]), 3)
    [[0.333, None]]
    """
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(array)
    size = np.where(finite & (array != 0), np.abs(array), 1)
    places = np.clip(digits - 1 - np.floor(np.log10(size)).astype(int), -300, 300)
    up = 10.0 ** np.abs(places)
    # an integer divided by a power of ten is the double nearest to the decimal, so it prints as short
    rounded = np.where(places >= 0, np.rint(array * up) / up, np.rint(array / up) * up)
    exact = np.abs(places) <= 22  # above, powers of ten are not exact
    if not exact.all():
        rounded[finite & ~exact] = [float(f"{value:.{digits}g}") for value in array[finite & ~exact]]
    listed: Any = rounded if finite.all() else np.where(finite, rounded.astype(object), None)
    return listed.tolist()


def scores(result: AttributionResult) -> Iterator[dict[str, Any]]:
    """One row for each score of a result, without the zeros of later target tokens."""
    for step, target in enumerate(result.target_tokens):
        if result.contrast is not None and result.contrast[step] is None:
            continue  # nothing is explained there
        own = step + 1 if result.level == "word" else step  # a word's first subwords contribute to its later ones
        sides = (
            ("source", result.source_tokens, result.source[step]),
            ("prefix", result.target_tokens[:own], result.prefix[step, :own]),
            ("start", [""], result.start[step : step + 1]),
        )
        for side, tokens, values in sides:
            for position, (token, value) in enumerate(zip(tokens, values.tolist(), strict=True)):
                row = {"step": step, "target": target, "side": side, "position": position, "token": token}
                row |= {} if result.contrast is None else {"contrast": result.contrast[step]}
                yield row | {"score": f"{value:.7g}"}


def method_name(result: AttributionResult) -> str:
    """Name of the method and its settings, except `word_settings`."""
    own = METHODS[result.method].word_settings if result.method in METHODS else {}
    told = [f"{name} {value}" for name, value in result.settings.items() if own.get(name) != value]
    settings = ", ".join(told)
    return f"{result.method} ({settings})" if settings else result.method


def gap_name(result: AttributionResult) -> str:
    """What the conservation gap of a result is."""
    return METHODS.get(result.method, AttributionMethod).gap


def shares(result: AttributionResult) -> np.ndarray | None:
    """[T], the source's share of each step; None for methods that do not divide a fixed total.

    Attention sums to 1 on each side, and gradients have no total: they do not weigh source against prefix.
    """
    method = METHODS.get(result.method)
    return result.source_contribution if method and method.shares(result.settings) else None


def linked_sources(result: AttributionResult) -> list[list[int]]:
    """The source tokens whose words are linked to the word of each target token."""
    own: dict[int, list[int]] = {}
    for i, word in enumerate(result.source_side.word_ids):
        if word is not None:
            own.setdefault(word, []).append(i)
    links = sorted(result.links or ())
    return [[s for i, j in links if j == word for s in own.get(i, ())] for word in result.target_side.word_ids]


def best_sources(result: AttributionResult) -> list[tuple[int, float] | None]:
    """The best source token of each target token and its share p(i | t), proportional to max(0, score).

    Special tokens are left out; None if there are no other tokens or no positive scores.
    """
    return _best(result.source, result.source_side.special)


def best_earlier(result: AttributionResult) -> list[tuple[int, float] | None]:
    """The same for earlier target tokens; None where the source share of the step is at least `RELIANT`.

    None everywhere if the method does not divide a fixed total.
    """
    share, best = shares(result), _best(np.tril(result.prefix, -1), result.target_side.special)
    return [found if share is not None and share[t] < RELIANT else None for t, found in enumerate(best)]


def _best(scores: np.ndarray, special: list[bool]) -> list[tuple[int, float] | None]:
    positive = np.maximum(np.nan_to_num(scores), 0) * ~np.array(special, dtype=bool)
    return [(int(p.argmax()), float(p.max()) / float(p.sum())) if p.sum() > 0 else None for p in positive]
