"""Toy tasks of Snell et al. 2021: copying permutations (3.3, A.3), permuted output (6.2), a keyword among words (6.1).

The data of a task depend only on seed and step: the same seed and step always produce the same batch.
"""

from dataclasses import dataclass

import numpy as np

LENGTH = 40
KEYWORD = 0  # "1" in the paper, whose words are counted from 1
TEST = 2**31  # step number that draws the test set


def permutations(rng: np.random.Generator, words: np.ndarray, number: int, length: int = LENGTH) -> np.ndarray:
    """Sequences [number, length] of different words in random order."""
    return rng.permuted(np.tile(words, (number, 1)), axis=1)[:, :length]


def mixture(rng: np.random.Generator, number: int) -> np.ndarray:
    """Sequences that are permutations of the first 40 words or of the other 40 (A.3)."""
    return permutations(rng, np.arange(LENGTH), number) + LENGTH * rng.integers(2, size=(number, 1))


@dataclass(frozen=True)
class CopyTask:
    """Sequences to copy, in their own order or in another fixed order."""

    words: int  # in the vocabulary; the start token is the next number
    permuted: bool = False  # the output is x_pi(1), ..., x_pi(40), with one pi for each seed (eq. 25)
    mixed: bool = False  # of two kinds, with 40 words each

    def order(self, seed: int) -> np.ndarray:
        """Pi: the position in the source of each word of the output."""
        return np.random.default_rng([seed]).permutation(LENGTH) if self.permuted else np.arange(LENGTH)

    def draw(self, seed: int, step: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Sources and targets [number, 40]."""
        rng = np.random.default_rng([seed, step])
        x = mixture(rng, number) if self.mixed else permutations(rng, np.arange(self.words), number)
        return x, x[:, self.order(seed)]


def draw_keyword(seed: int, step: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences [number, 40], half of which contain the keyword once, and its position [number] or -1.

    The paper uses rejection sampling; here the other words and the position are drawn directly, all of them uniform.
    """
    rng = np.random.default_rng([seed, step])
    x = rng.integers(1, LENGTH, size=(number, LENGTH))  # every word but the keyword
    place = np.where(rng.permutation(number) < number // 2, rng.integers(LENGTH, size=number), -1)
    x[place >= 0, place[place >= 0]] = KEYWORD
    return x, place


COPY_TASKS = {
    "40-of-40": CopyTask(40),
    "40-of-60": CopyTask(60),
    "mixture": CopyTask(80, mixed=True),
    "40-of-80": CopyTask(80),
    "permuted": CopyTask(60, permuted=True),
}
