"""Small explanations written by hand."""

import numpy as np

from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.text.tokens import TokenWords

PAYLOAD = '</script><script>alert("x")</script><img src=x onerror=alert(1)>&amp;{{ 7 * 7 }}'  # hostile text


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


def _side(*tokens: str) -> TokenWords:
    return TokenWords(list(tokens), list(tokens), list(range(len(tokens))), [False] * len(tokens))


def result_of(source, prefix, start) -> AttributionResult:
    """A result of words `a`, `b`, ... from its arrays."""
    arrays = [np.array(a, dtype=np.float32) for a in (source, prefix, start)]
    names = "abcdef"
    return AttributionResult(_side(*names[: arrays[0].shape[1]]), _side(*names[: len(arrays[2])]), *arrays)


def random_result(source: int, target: int, seed: int) -> AttributionResult:
    """A result of up to six tokens a side with contributions of total 1 at each step; some are 0."""
    rng = np.random.default_rng(seed)
    scores = rng.random((target, source + target + 1)) * (rng.random((target, source + target + 1)) < 0.8)
    scores[:, 0] += 0.1  # the source always contributes
    scores[:, source : source + target] *= np.tri(target, target, -1)
    scores /= scores.sum(-1, keepdims=True)
    return result_of(*np.split(scores[:, :-1], [source], axis=1), scores[:, -1])


EXAMPLE = result_of(
    source=[[0.25, 0.75], [0.3, 0.3], [0.1, 0.1]],
    prefix=[[0, 0, 0], [0.2, 0, 0], [0.3, 0.3, 0]],
    start=[0.0, 0.2, 0.2],
)
