"""Word scores from token scores, and links from word scores; definitions: docs/methods.md, Word alignment."""

from collections.abc import Callable

import numpy as np

from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.text.pharaoh import Links
from hf_nmt_interp.text.tokens import TokenWords


def word_scores(scores: np.ndarray, source: TokenWords, target: TokenWords) -> np.ndarray:
    """Scores [T, S] of tokens as scores [target words, source words], without special tokens.

    Source subwords are summed, target subwords averaged; -inf for a word without subwords, which gets no link.
    """

    def members(side: TokenWords) -> np.ndarray:  # [words, tokens], 1 where the token is part of the word
        return np.array(side.word_ids)[None] == np.arange(len(side.words))[:, None]

    summed, averaged = members(source), members(target)
    count = averaged.sum(1, keepdims=True)
    words = averaged @ scores @ summed.T / np.maximum(count, 1)
    return np.where((count > 0) & summed.any(1), words, -np.inf)


def normalise(scores: np.ndarray) -> np.ndarray:
    """p(i | t) proportional to max(0, score), by row; a row without a positive score is 0.

    >>> normalise(np.array([[3.0, 1.0, -2.0], [-1.0, 0.0, -1.0]])).tolist()
    [[0.75, 0.25, 0.0], [0.0, 0.0, 0.0]]
    """
    positive = np.maximum(scores, 0)
    mass = positive.sum(-1, keepdims=True)
    return np.divide(positive, mass, out=np.zeros_like(positive), where=mass > 0)


def _argmax(scores: np.ndarray, _: float | None = None) -> Links:
    return {(int(i), j) for j, i in enumerate(scores.argmax(1)) if np.isfinite(scores[j, i])}


def _threshold(scores: np.ndarray, threshold: float = 0.2) -> Links:
    return {(int(i), int(j)) for j, i in np.argwhere(normalise(scores) >= threshold)}


def _mutual(scores: np.ndarray, _: float | None = None) -> Links:
    p = normalise(scores)
    best = p.argmax(0)
    return {(i, j) for i, j in _argmax(scores) if best[i] == j and p[j, i] > 0}


def _shared(scores: np.ndarray, threshold: float = 0.3) -> Links:
    p = normalise(scores)
    both = np.sqrt(p * normalise(p.T).T)
    return _mutual(scores) | {(int(i), int(j)) for j, i in np.argwhere(both >= threshold)}


EXTRACTIONS: dict[str, Callable[..., Links]] = {
    "argmax": _argmax,
    "threshold": _threshold,
    "mutual": _mutual,
    "shared": _shared,
}
SUBWORD_ARGMAX = "subword_argmax"


def subword_links(scores: np.ndarray, source: TokenWords, target: TokenWords) -> Links:
    """Link each target subword to its best source subword by scores [T, S]; a word gets the links of its subwords.

    This is the authors' code (ding2019); special tokens are left out.
    """
    kept = [i for i, word in enumerate(source.word_ids) if word is not None]
    if not kept:
        return set()
    words = [source.word_ids[kept[i]] for i in scores[:, kept].argmax(1)]  # of each target subword
    return {(i, j) for i, j in zip(words, target.word_ids, strict=True) if i is not None and j is not None}


def extract_links(scores: np.ndarray, extraction: str = "argmax", threshold: float | None = None) -> Links:
    """Hard links (source word, target word) from scores of words.

    Args:
        scores: [target words, source words], from `word_scores` or `soft_alignment`.
        extraction: `argmax`: links each target word to its best source word; `threshold`: all links with
            p(i | t) >= threshold; `mutual`: links that are best for their target word and their source word; `shared`:
            these, and all links whose geometric mean of p(i | t) and p(t | i) is at least the threshold.
        threshold: above 0; None for 0.2 (`threshold`) or 0.3 (`shared`).

    >>> sorted(extract_links(np.array([[0.9, 0.1], [0.6, 0.4]])))
    [(0, 0), (0, 1)]
    >>> extract_links(np.array([[0.9, 0.1], [0.6, 0.4]]), "mutual")
    {(0, 0)}
    >>> sorted(extract_links(np.array([[0.9, 0.1], [0.6, 0.4]]), "shared"))
    [(0, 0), (0, 1), (1, 1)]
    """
    check_extraction(extraction)
    if extraction == SUBWORD_ARGMAX:
        raise InputError("extraction", extraction, "needs subword scores", "use align without joint scores")
    if threshold is not None and not 0 < threshold <= 1:
        raise InputError("threshold", threshold, "must be above 0 and at most 1")
    own = () if threshold is None else (threshold,)
    return EXTRACTIONS[extraction](scores, *own) if scores.size else set()


def check_extraction(extraction: str) -> None:
    """Raise for an unknown way to extract links."""
    check_choice("extraction", extraction, (*EXTRACTIONS, SUBWORD_ARGMAX))
