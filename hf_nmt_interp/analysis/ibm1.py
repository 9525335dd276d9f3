"""IBM Model 1 (Brown et al. 1993; snell2021, section 4.2); definitions: docs/methods.md, How attention learns."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from hf_nmt_interp.errors import InputError

Words = Sequence[Hashable]
_CHUNK = 1000  # sentence pairs at a time
SHIFT = 32  # a key has a source word's id above these bits and a target word's id below


class IBM1:
    """Counts C[i, o] and Trans(o | i) of word pairs that occur together.

    At first every source word is equally likely to generate a target word: C is then the count table that a
    bag-of-words translator starts to learn from (eq. 15, 16). Further iterations are expectation maximisation.

    Args:
        pairs: (source words, target words), words of any hashable type; read once for each iteration, never stored.
        iterations: at least 1.

    >>> corpus = [(["das", "Haus"], ["the", "house"]), (["das", "Buch"], ["the", "book"])]
    >>> model = IBM1(corpus)
    >>> model.translation("das", "the"), model.translation("Haus", "the")
    (0.5, 0.5)
    >>> IBM1(corpus, iterations=9).best("Haus", 1)[0][0]
    'house'
    """

    def __init__(self, pairs: Iterable[tuple[Words, Words]], iterations: int = 1) -> None:
        if iterations < 1:
            raise InputError("iterations", iterations, "must be at least 1")
        if iterations > 1 and iter(pairs) is pairs:
            raise InputError("pairs", None, f"an iterator can be read once, not {iterations} times", "give a list")
        self.sources: dict[Hashable, int] = {}
        self.targets: dict[Hashable, int] = {}
        table = _Sums()
        for x, y, lengths in self._chunks(pairs, learn=True):
            table.add((x << SHIFT) + y, np.repeat(1 / lengths, lengths))
        self.keys, self.counts = table.merged()  # [n] in rising order, [n]
        if not len(self.keys):
            raise InputError("pairs", None, "no pair has words on both sides", "is the corpus empty?")
        for _ in range(iterations - 1):
            self.counts = self._expected_counts(pairs)

    def _chunks(self, pairs: Iterable[tuple[Words, Words]], learn: bool) -> Iterator[tuple[Any, Any, Any]]:
        """Source and target words of all (pair, t, l), l running fastest, and L of each (pair, t)."""
        pairs = iter(pairs)
        while chunk := list(islice(pairs, _CHUNK)):
            xs, ys, lengths = [], [], []
            for source, target in chunk:
                x, y = word_numbers(self.sources, source, learn), word_numbers(self.targets, target, learn)
                if len(x) and len(y):
                    xs.append(np.tile(x, len(y)))  # [T * L]
                    ys.append(np.repeat(y, len(x)))
                    lengths.append(np.full(len(y), len(x)))
            if xs:
                yield np.concatenate(xs), np.concatenate(ys), np.concatenate(lengths)

    def _expected_counts(self, pairs: Iterable[tuple[Words, Words]]) -> np.ndarray:
        """Sum of alpha(t, l) for each word pair, with alpha from the current table."""
        trans, counts = self.translations(), np.zeros(len(self.keys))
        for x, y, lengths in self._chunks(pairs, learn=False):
            place, found = self._find((x << SHIFT) + y)
            if not found.all():
                raise InputError("pairs", None, "differ from the first time they were read", "give a list or a corpus")
            beta = trans[place]
            sums = np.add.reduceat(beta, np.cumsum(lengths) - lengths)  # of each (pair, t)
            counts += np.bincount(place, beta / np.repeat(sums, lengths), len(counts))
        return counts

    def _find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of keys in the table, and whether they exist."""
        place = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return place, self.keys[place] == keys

    def translations(self) -> np.ndarray:
        """Trans(o | i) = C[i, o] / sum_o' C[i, o'] of each key (eq. 17)."""
        source = self.keys >> SHIFT
        return self.counts / np.bincount(source, self.counts)[source]

    def _look_up(self, values: np.ndarray, source: Words, target: Words) -> np.ndarray:
        """Values [T, L] of word pairs, 0 for those that never occurred together."""
        x, y = word_numbers(self.sources, source, learn=False), word_numbers(self.targets, target, learn=False)
        place, found = self._find((x[None, :] << SHIFT) + y[:, None])
        return np.where(found & (x >= 0)[None] & (y >= 0)[:, None], values[place], 0.0)

    def count(self, source: Hashable, target: Hashable) -> float:
        """C[i, o] (eq. 16)."""
        return float(self._look_up(self.counts, [source], [target])[0, 0])

    def translation(self, source: Hashable, target: Hashable) -> float:
        """Trans(o | i) (eq. 17)."""
        return float(self.probe([source], [target])[0, 0])

    def probe(self, source: Words, target: Words) -> np.ndarray:
        """beta[t, l] = Trans(y_t | x_l) (eq. 18), [T, L]."""
        return self._look_up(self.translations(), source, target)

    def align(self, source: Words, target: Words) -> np.ndarray:
        """alpha[t, l] = beta[t, l] / sum_l' beta[t, l'] (eq. 19), [T, L]; 1 / L where no word is known."""
        beta = self.probe(source, target)
        total = beta.sum(-1, keepdims=True)
        return np.where(total > 0, beta / np.where(total > 0, total, 1), 1 / max(1, len(source)))

    def best(self, source: Hashable, number: int = 5) -> list[tuple[Hashable, float]]:
        """The most likely translations of a word, and how likely they are."""
        x = self.sources.get(source)
        if x is None:
            raise InputError("source", source, "is not a source word of the corpus")
        here = slice(*np.searchsorted(self.keys, [x << SHIFT, (x + 1) << SHIFT]))
        shares, names = self.counts[here] / self.counts[here].sum(), list(self.targets)
        order = np.argsort(-shares, kind="stable")[:number]
        return [(names[self.keys[here][i] & (2**SHIFT - 1)], float(shares[i])) for i in order]


class _Sums:
    """Sums by key; parts are merged when they are as large as the merged part."""

    def __init__(self) -> None:
        self.keys, self.sums = np.zeros(0, np.int64), np.zeros(0)
        self.parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.parts.append(_summed(keys, values))
        if sum(len(part) for part, _ in self.parts) > max(len(self.keys), 2**20):
            self.merged()

    def merged(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys in rising order and their sums."""
        parts = [(self.keys, self.sums), *self.parts]
        self.keys, self.sums = _summed(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        self.parts = []
        return self.keys, self.sums


def _summed(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    unique, place = np.unique(keys, return_inverse=True)
    return unique, np.bincount(place, values, len(unique))


def word_numbers(known: dict[Hashable, int], words: Words, learn: bool) -> np.ndarray:
    """Ids of words; new words are added, or get -1."""
    found = (known.setdefault(word, len(known)) for word in words) if learn else (known.get(w, -1) for w in words)
    return np.fromiter(found, np.int64, len(words))
