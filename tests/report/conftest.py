"""Small explanations written by hand."""

import numpy as np
import pytest

from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.text.tokens import TokenWords


def make_result(source: list[str], target: list[str], method: str = "lrp", gap: float | None = 1e-7, **settings):
    """A result at token level: `▁` starts a word, `</s>` ends the sentence; step t comes mostly from source t."""

    def side(tokens: list[str]) -> TokenWords:
        special = [token == "</s>" for token in tokens]
        starts = np.cumsum([token.startswith("▁") for token in tokens]) - 1
        ids = [None if is_special else int(i) for i, is_special in zip(starts, special, strict=True)]
        words = [""] * (max((i for i in ids if i is not None), default=-1) + 1)
        for token, i in zip(tokens, ids, strict=True):
            if i is not None:
                words[i] += token.removeprefix("▁")
        return TokenWords(tokens, words, ids, special)

    S, T = len(source), len(target)
    scores = np.full((T, S), 0.1, np.float32) + np.eye(T, S, dtype=np.float32)
    prefix = np.tril(np.full((T, T), 0.2, np.float32), -1)
    start = np.full(T, 0.1, np.float32)
    total = scores.sum(-1) + prefix.sum(-1) + start
    arrays = (scores / total[:, None], prefix / total[:, None], start / total, np.full(T, -0.5, np.float32))
    return AttributionResult(side(source), side(target), *arrays, gap, method, settings)


@pytest.fixture
def result() -> AttributionResult:
    """A cat that sleeps."""
    return make_result(["▁A", "▁cat", "▁sleep", "s", "</s>"], ["▁Eine", "▁Katze", "▁schlä", "ft", "</s>"])
