"""Word vectors from a text file in the format of GloVe: a word and its numbers per line, separated by spaces."""

import math
from collections.abc import Collection
from pathlib import Path

from hf_nmt_interp.text.corpus import LineError, read_lines


def read_vectors(path: str | Path, words: Collection[str], size: int) -> dict[str, list[float]]:
    """Vectors of those words that are in the file; every line must have `size` numbers.

    Args:
        path: path of a UTF-8 file.
        words: the words to look up; a word that occurs twice gets its first vector.
        size: length of a vector.
    """
    found: dict[str, list[float]] = {}
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        word, *numbers = line.rstrip().split(" ")
        if len(numbers) != size:
            remedy = f"embeddings of {size} are needed; change embedding_size or the file"
            raise LineError(where, None, f"has {len(numbers)} numbers", remedy)
        if word in words and word not in found:
            found[word] = _numbers(numbers, where)
    return found


def _numbers(texts: list[str], where: str) -> list[float]:
    """Parse finite numbers."""
    vector = []
    for text in texts:
        try:
            vector.append(float(text))
        except ValueError as error:
            raise LineError(where, text, "is not a number") from error
        if not math.isfinite(vector[-1]):
            raise LineError(where, text, "is not finite")
    return vector
