"""Links of two directions and several methods by their definitions, one number at a time."""

from math import prod, sqrt


def shares(scores: list[list[float]]) -> list[list[float]]:
    """p(i | t) of scores [target][source]."""
    found = []
    for row in scores:
        mass = sum(max(0.0, score) for score in row)
        found.append([max(0.0, score) / mass if mass > 0 else 0.0 for score in row])
    return found


def turned(scores: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*scores, strict=True)]


def combined(methods: list[list[list[float]]]) -> list[list[float]]:
    """Geometric mean over methods of p(i | t)."""
    soft = [shares(scores) for scores in methods]
    return [
        [prod(p[t][i] for p in soft) ** (1 / len(soft)) for i in range(len(row))] for t, row in enumerate(methods[0])
    ]


def sure_links(forward: list[list[float]], backward: list[list[float]], least: float) -> set[tuple[int, int]]:
    """Links best for both words in the product of both directions, with at least that share of their scores."""
    one, other = shares(forward), turned(shares(backward))
    joint = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(one, other, strict=True)]
    by_target, by_source = shares(joint), turned(shares(turned(joint)))
    return {
        (i, t)
        for t, row in enumerate(joint)
        for i, score in enumerate(row)
        if score > 0
        and score == max(row) == max(other[i] for other in joint)
        and sqrt(by_target[t][i] * by_source[t][i]) >= least
    }


def shared_links(scores: list[list[float]], threshold: float) -> set[tuple[int, int]]:
    """Links of one direction that are the first best of both words, or strong for both."""
    p = shares(scores)
    q = turned(shares(turned(p)))
    return {
        (i, t)
        for t, row in enumerate(p)
        for i, column in enumerate(turned(p))
        if (row[i] > 0 and row.index(max(row)) == i and column.index(max(column)) == t)
        or sqrt(row[i] * q[t][i]) >= threshold
    }
