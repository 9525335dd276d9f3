"""Explanations as plain data: JSON objects, rows of scores, the source word of each target word."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hf_nmt_interp.attribution.result import AttributionResult


def record(result: AttributionResult, digits: int = 7) -> dict[str, Any]:
    """A result as a JSON object; numbers have that many significant digits, undefined ones are None.

    `source_tokens` and `target_tokens` are what rows and columns of the arrays stand for: subwords, or words and
    special tokens after `to_words()`.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | list):
            return [plain(part) for part in value]
        return None if value is None or not np.isfinite(value) else float(f"{value:.{digits}g}")

    found: dict[str, Any] = {"method": result.method, "settings": result.settings, "level": result.level}
    for name, side in (("source", result.source_side), ("target", result.target_side)):
        found |= {
            f"{name}_tokens": side.tokens,
            f"{name}_words": side.words,
            f"{name}_word_ids": side.word_ids,
            f"{name}_special": side.special,
        }
    arrays = ("source", "prefix", "start", "source_contribution", "log_probs", "conservation_gap")
    return found | {name: plain(getattr(result, name)) for name in arrays}


def scores(result: AttributionResult) -> Iterator[dict[str, Any]]:
    """One row for each score of a result, without the zeros of later target tokens."""
    for step, target in enumerate(result.target_tokens):
        own = step + 1 if result.level == "word" else step  # a word's first subwords contribute to its later ones
        sides = (
            ("source", result.source_tokens, result.source[step]),
            ("prefix", result.target_tokens[:own], result.prefix[step, :own]),
            ("start", [""], result.start[step : step + 1]),
        )
        for side, tokens, values in sides:
            for position, (token, value) in enumerate(zip(tokens, values.tolist(), strict=True)):
                row = {"step": step, "target": target, "side": side, "position": position, "token": token}
                yield row | {"score": f"{value:.7g}"}


def method_name(result: AttributionResult) -> str:
    """Name of the method and its settings."""
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    return f"{result.method} ({settings})" if settings else result.method


def shares(result: AttributionResult) -> np.ndarray | None:
    """[T], how much of each step came from the source; None for methods whose sides cannot be weighed.

    Only a method that shares out a fixed total weighs source against prefix; attention sums to 1 on each side, and
    gradients have no total.
    """
    return None if result.conservation_gap is None else result.source_contribution


def best_sources(result: AttributionResult) -> list[tuple[int, float] | None]:
    """For each target token its best source token and that one's share p(i | t) proportional to max(0, score).

    Special tokens are left out; None where there is no other or no positive score.
    """
    allowed = ~np.array(result.source_side.special, dtype=bool)
    positive = np.maximum(np.nan_to_num(result.source), 0) * allowed
    found: list[tuple[int, float] | None] = []
    for row in positive:
        total = float(row.sum())
        best = int(row.argmax()) if len(row) else 0
        found.append((best, float(row[best]) / total) if total > 0 else None)
    return found
