"""Numbers of the toy studies, slow and literal (snell2021, sections 3.3 and 6.1)."""


def gammas(gamma: list[list[float]], places: list[int]) -> tuple[float, float, float, float]:
    """Means over sentences of gamma_l*, gamma_(l*+1), their mean over l, gamma_L (eq. 22 to 24).

    Args:
        gamma: of each sentence, the log-odds of each state.
        places: l* of each sentence from 0, -1 without a keyword; only those whose next word is not the last are taken.
    """
    found = []
    for row, place in zip(gamma, places, strict=True):
        length = len(row)
        if place >= 0 and (place + 1) + 1 < length:
            found.append((row[place], row[place + 1], sum(row) / length, row[length - 1]))
    return tuple(sum(column) / len(found) for column in zip(*found, strict=True))


def accuracy_of_a_bag(words: int) -> float:
    """Expected accuracy, teacher-forced, of guessing among the words of a permutation not written yet."""
    return sum(1 / (words - written) for written in range(words)) / words
