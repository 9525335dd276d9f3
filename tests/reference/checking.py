"""Signals of bad translations, word by word in plain Python and float64."""

import math


def clipped_coverage(attention: list[list[float]], i: int) -> float:
    """min(1, sum over target words t of p(i | t)); attention [target words, source words]."""
    return min(1.0, sum(row[i] for row in attention))


def best_link(links: list[list[float]], i: int) -> float:
    """max over target words t of p(i | t)."""
    return max(row[i] for row in links)


def information(with_source: list[float], without_source: list[float]) -> list[float]:
    """log P(y_t | x, y_<t) - log P(y_t | y_<t)."""
    return [a - b for a, b in zip(with_source, without_source, strict=True)]


def information_share(with_source: list[float], without_source: list[float]) -> float:
    """1 - log P(y | x) / log P(y | empty)."""
    return 1 - sum(with_source) / sum(without_source)


def gram_list(words: list[str], n: int) -> list[tuple[str, ...]]:
    """All n-grams in order."""
    return [tuple(words[k : k + n]) for k in range(len(words) - n + 1)]


def repeated_share(words: list[str], n: int) -> float:
    """n-grams that occurred before, divided by the number of words."""
    grams = gram_list(words, n)
    return sum(gram in grams[:k] for k, gram in enumerate(grams)) / len(words)


def repeated_ngrams(source: list[str], target: list[str]) -> float:
    """Largest difference of the shares, n = 1 to 4."""
    return max(repeated_share(target, n) - repeated_share(source, n) for n in (1, 2, 3, 4))


def top_ngram(source: list[str], target: list[str]) -> float:
    """Largest n (count of the top n-gram in the target - the same in the source), n = 1 to 4."""

    def top(words: list[str], n: int) -> int:
        grams = gram_list(words, n)
        return max([grams.count(gram) for gram in grams] or [0])

    return max(n * (top(target, n) - top(source, n)) for n in (1, 2, 3, 4))


def log_loss(beta: list[float], x: list[list[float]], y: list[int], l2: float) -> float:
    """Mean -log P(y | x) of a logistic model, bias first, + l2 / 2 |weights|^2."""
    total = 0.0
    for row, label in zip(x, y, strict=True):
        z = beta[0] + sum(b * v for b, v in zip(beta[1:], row, strict=True))
        total -= math.log(1 / (1 + math.exp(-z)) if label else 1 / (1 + math.exp(z)))
    return total / len(y) + l2 / 2 * sum(b * b for b in beta[1:])


def smoothed(values: list[float], kept: list[int], n: int) -> float:
    """Mean over the word n and two on each side among the kept words of its clause."""
    place = kept.index(n)
    near = [values[k] for k in kept if abs(kept.index(k) - place) <= 2]
    return sum(near) / len(near)


def clause_maximum(coverage: list, clauses: list[list[int]]) -> float:
    """Least over clauses of the largest coverage of a word; None is punctuation, which has none."""
    least = 1.0
    for clause in clauses:
        own = [coverage[n] for n in clause if coverage[n] is not None]
        if own:
            least = min(least, max(own))
    return least
