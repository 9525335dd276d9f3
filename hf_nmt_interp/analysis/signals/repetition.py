"""Repetition of n-grams that the source does not explain."""

from collections import Counter

from hf_nmt_interp.analysis.signals.base import Signal
from hf_nmt_interp.analysis.signals.reading import Reading, is_mark
from hf_nmt_interp.text.tokens import TokenWords

_LENGTHS = (1, 2, 3, 4)


def _counts(side: TokenWords, n: int) -> tuple[Counter[tuple[str, ...]], int]:
    """How often each n-gram of words occurs, lower-cased and without punctuation, and the number of words."""
    words = [word.casefold() for word in side.words if not is_mark(word)]
    return Counter(zip(*(words[k:] for k in range(n)), strict=False)), len(words)


class RepeatedNgrams(Signal):
    """Share of n-grams that occurred before, minus that of the source; the largest for n = 1 to 4."""

    name, passes, rises = "repeated_ngrams", (), True

    @staticmethod
    def score(reading: Reading) -> float:
        def repeated(side: TokenWords, n: int) -> float:
            counts, words = _counts(side, n)
            return (counts.total() - len(counts)) / max(words, 1)

        return max(repeated(reading.pair.target, n) - repeated(reading.pair.source, n) for n in _LENGTHS)


class TopNgram(Signal):
    """n times the count of the most frequent n-gram minus that of the source; the largest for n = 1 to 4."""

    name, passes, rises = "top_ngram", (), True

    @staticmethod
    def score(reading: Reading) -> float:
        def top(side: TokenWords, n: int) -> int:
            return max(_counts(side, n)[0].values(), default=0)

        return float(max(n * (top(reading.pair.target, n) - top(reading.pair.source, n)) for n in _LENGTHS))
