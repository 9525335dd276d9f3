"""A statistical word aligner: IBM Model 1 with a diagonal prior, trained by stepwise expectation maximisation.

The prior is that of fast_align (Dyer et al. 2013), the steps are those of Liang and Klein (2009).
Definitions: docs/methods.md, Word alignment.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice

import numpy as np

from hf_nmt_interp.analysis.ibm1 import SHIFT, Words, word_numbers
from hf_nmt_interp.analysis.symmetrization import flip
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import Pair
from hf_nmt_interp.text.pharaoh import Links

NULL = ""  # source word of target words that translate nothing; text contains no empty words


class StepwiseAligner:
    """Aligns words by expected counts C[i, o] of word pairs, which are updated after each batch of the text.

    Args:
        pairs: (source words, target words); read once for each pass, never stored.
        passes: number of passes over the pairs; an iterator is enough for one pass.
        batch_size: sentence pairs between two updates.
        power: the k-th update has the weight k ** -power, 0.5 <= power <= 1; 1 is the plain mean of all batches.
        tension: strength of the diagonal prior; 0 is IBM Model 1.
        null: probability that a target word translates nothing.
        smoothing: a, added to the count of every word pair.

    >>> corpus = [(["das", "Haus"], ["the", "house"]), (["das", "Buch"], ["the", "book"])]
    >>> sorted(StepwiseAligner(corpus, passes=5).links(["Buch"], ["book"]))
    [(0, 0)]
    """

    def __init__(
        self,
        pairs: Iterable[tuple[Words, Words]],
        passes: int = 5,
        batch_size: int = 5000,
        power: float = 0.7,
        tension: float = 4.0,
        null: float = 0.08,
        smoothing: float = 1e-3,
    ) -> None:
        _check(passes=passes, batch_size=batch_size, power=power, tension=tension, null=null, smoothing=smoothing)
        if passes > 1 and iter(pairs) is pairs:
            raise InputError("pairs", None, f"an iterator can be read once, not {passes} times", "give a list")
        self.power, self.tension, self.null, self.smoothing = power, tension, null, smoothing
        self.sources: dict = {NULL: 0}
        self.targets: dict = {}
        self.keys, self.means = np.zeros(0, np.int64), np.zeros(0)  # in rising order, and expected counts of a batch
        self.updates = self.batches = 0  # so far, and in one pass
        for number in range(passes):
            text = iter(pairs)
            while batch := list(islice(text, batch_size)):
                self.batches += number == 0
                self._update(batch)
        if not len(self.keys):
            raise InputError("pairs", None, "no pair has words on both sides", "is the corpus empty?")

    def _update(self, batch: Sequence[tuple[Words, Words]]) -> None:
        """Means <- (1 - w) means + w (expected counts of the batch), w = updates ** -power."""
        cells = list(self._cells(batch))
        if not cells:
            return
        keys, priors, sizes = (np.concatenate(column) for column in zip(*cells, strict=True))
        unique, inverse = np.unique(keys, return_inverse=True)
        place, found = self._find(unique)
        scores = self._translations(unique, place, found)[inverse] * priors
        sums = np.add.reduceat(scores, np.cumsum(sizes) - sizes)  # of each target word
        counts = np.bincount(inverse, scores / np.repeat(sums, sizes), len(unique))
        self.updates += 1
        weight = self.updates**-self.power
        self.means *= 1 - weight
        self.means[place[found]] += weight * counts[found]
        new = np.searchsorted(self.keys, unique[~found])
        self.keys = np.insert(self.keys, new, unique[~found])
        self.means = np.insert(self.means, new, weight * counts[~found])

    def _cells(self, batch: Sequence[tuple[Words, Words]]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Keys and priors of all (t, l) of each pair, l from NULL on and running fastest, and L + 1 of each t."""
        for source, target in batch:
            if len(source) and len(target):
                x, y = word_numbers(self.sources, [NULL, *source], True), word_numbers(self.targets, target, True)
                keys = (x[None] << SHIFT) + y[:, None]
                yield keys.ravel(), self._prior(*keys.shape).ravel(), np.full(len(y), len(x))

    def _prior(self, T: int, width: int) -> np.ndarray:
        return diagonal_prior(T, width - 1, self.tension, self.null)

    def _find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of keys in the table, and whether they exist."""
        place = np.searchsorted(self.keys, keys)
        inside = place < len(self.keys)
        inside[inside] = self.keys[place[inside]] == keys[inside]
        return place, inside

    def _translations(self, keys: np.ndarray, place: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Trans(o | i) = (C[i, o] + a) / (C[i] + a V) of keys, C = batches * means."""
        counts, a = np.zeros(len(keys)), self.smoothing
        counts[found] = self.batches * self.means[place[found]]
        totals = self.batches * np.bincount(self.keys >> SHIFT, self.means, len(self.sources) + 1)
        return (counts + a) / (totals + a * len(self.targets))[keys >> SHIFT]

    def align(self, source: Words, target: Words) -> np.ndarray:
        """p(l | t) [T, 1 + L], column 0 for NULL."""
        x, y = word_numbers(self.sources, [NULL, *source], False), word_numbers(self.targets, target, False)
        x, y = np.where(x < 0, len(self.sources), x), np.where(y < 0, len(self.targets), y)  # no key has these
        keys = (x[None] << SHIFT) + y[:, None]
        place, found = self._find(keys.ravel())
        scores = self._translations(keys.ravel(), place, found).reshape(keys.shape) * self._prior(*keys.shape)
        return scores / scores.sum(1, keepdims=True)

    def links(self, source: Words, target: Words) -> Links:
        """Link each target word to its best source word, or to none."""
        if not len(source) or not len(target):
            return set()
        best = self.align(source, target).argmax(1)
        return {(int(i) - 1, j) for j, i in enumerate(best) if i}


def _check(**settings: float) -> None:
    ranges = {"power": (0.5, 1), "tension": (0, np.inf), "null": (0, 0.99), "smoothing": (1e-6, np.inf)}
    for name, value in settings.items():
        low, high = ranges.get(name, (1, np.inf))
        if not low <= value <= high:
            problem = f"must be from {low} to {high}" if high < np.inf else f"must be at least {low}"
            raise InputError(name, value, problem)


@lru_cache(maxsize=4096)
def diagonal_prior(T: int, L: int, tension: float, null: float) -> np.ndarray:
    """p(l | t) [T, 1 + L]: `null` for column 0, the rest as exp(-tension |t / T - l / L|), t and l from 1.

    >>> diagonal_prior(2, 2, 0.0, 0.5).tolist()
    [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]
    """
    distance = np.abs(np.arange(1, T + 1)[:, None] / T - np.arange(1, L + 1)[None] / L)
    near = np.exp(-tension * (distance - distance.min(1, keepdims=True)))  # with a large tension, not all become 0
    return np.hstack([np.full((T, 1), null), (1 - null) * near / near.sum(1, keepdims=True)])


def stepwise_links(
    pairs: Sequence[Pair], training: Iterable[Pair], online: bool = False
) -> tuple[list[Links], list[Links]]:
    """Links of both directions for sentence pairs, by aligners trained on the training text.

    Args:
        pairs: sentence pairs, which are lower-cased; words are separated by spaces.
        training: training pairs in the same format.
        online: do not train on `pairs`, as if text were aligned while it is written.

    Returns:
        Links (source word, target word), at most one for each target word; and at most one for each source word.
    """
    asked = [(source.lower().split(), target.lower().split()) for source, target in pairs]
    text = [(source.lower().split(), target.lower().split()) for source, target in training]
    text = text if online else list(chain(asked, text))
    forward = StepwiseAligner(text)
    found = [forward.links(source, target) for source, target in asked]
    del forward
    backward = StepwiseAligner([pair[::-1] for pair in text])
    return found, [flip(backward.links(target, source)) for source, target in asked]
