"""Smoothed BLEU of many candidates for one reference, whose n-grams are counted once."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hf_nmt_interp.errors import check_choice

_ORDER = 4


class SentenceBLEU:
    """Sentence BLEU from 0 to 100, higher is better; equal to `sacrebleu.sentence_bleu`.

    Args:
        tokenize: name of a sacrebleu tokenizer; "none" splits at spaces, e.g. for subwords.
        smoothing: "exp", "floor", "add-k" or "none", as in sacrebleu.

    >>> [round(score, 1) for score in SentenceBLEU()(["the cat sat", "a cat sat here", ""], "the cat sat here")]
    [71.7, 59.5, 0.0]
    """

    primary, greater_is_better = "sentence_bleu", True

    def __init__(self, tokenize: str = "13a", smoothing: str = "exp") -> None:
        from sacrebleu.metrics.bleu import BLEU

        check_choice("tokenize", tokenize, BLEU.TOKENIZERS)
        check_choice("smoothing", smoothing, BLEU.SMOOTH_DEFAULTS)
        self._bleu = BLEU(tokenize=tokenize, smooth_method=smoothing, effective_order=True)

    def __call__(self, candidates: Sequence[str], reference: str) -> list[float]:
        """Score each candidate."""
        gold = self._count(reference)
        return [self._score(candidate, *gold) for candidate in candidates]

    def _count(self, text: str) -> tuple[Counter[tuple[str, ...]], int]:
        words = self._bleu.tokenizer(text.rstrip()).split()
        return Counter(gram for n in range(_ORDER) for gram in zip(*(words[i:] for i in range(n + 1)))), len(words)  # noqa: B905

    def _score(self, candidate: str, gold: Counter[tuple[str, ...]], gold_length: int) -> float:
        grams, length = self._count(candidate)
        correct = [0] * _ORDER
        for gram, count in (grams & gold).items():  # the smaller count of each
            correct[len(gram) - 1] += count
        total = [max(0, length - n) for n in range(_ORDER)]
        options: Any = {"smooth_method": self._bleu.smooth_method, "effective_order": True}
        return self._bleu.compute_bleu(correct, total, length, gold_length, **options).score
