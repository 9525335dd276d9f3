"""Confidence and roles of one head (voita2019, sections 4 and 5), token by token in plain Python and float64.

Attention is a list of rows, one for each query, without EOS and other special tokens on both sides.
"""

Matrix = list[list[float]]


def largest(row: list[float]) -> int:
    """Index of the first largest number."""
    best = 0
    for i, value in enumerate(row):
        if value > row[best]:
            best = i
    return best


def confidence(sentences: list[Matrix]) -> float:
    """Average over tokens of the maximum attention weight."""
    rows = [row for weights in sentences for row in weights]
    return sum(max(row) for row in rows) / len(rows)


def position_share(sentences: list[tuple[Matrix, list[int], list[int]]], offset: int) -> float:
    """How often the maximum is at `offset`, among the tokens that have a token there.

    Sentences are attention, positions of the queries, positions of the keys.
    """
    hits = possible = 0
    for weights, queries, keys in sentences:
        for row, query in zip(weights, queries, strict=True):
            possible += query + offset in keys
            hits += keys[largest(row)] == query + offset
    return hits / possible


def position(sentences: list[tuple[Matrix, list[int], list[int]]]) -> int:
    """Relative position that most maxima are at; of equally frequent ones the nearest, then the preceding one."""
    offsets = [
        keys[largest(row)] - query
        for weights, queries, keys in sentences
        for row, query in zip(weights, queries, strict=True)
    ]
    return sorted(set(offsets), key=lambda offset: (-offsets.count(offset), abs(offset), offset))[0]


def is_positional(share: float) -> bool:
    """At least 90 % of the time."""
    return share >= 0.9


def word_attention(weights: Matrix, words: list[list[int]]) -> Matrix:
    """Attention between words from that of subwords: mean over those of the query, sum over those of the key."""
    return [[sum(sum(weights[q][k] for k in key) for q in query) / len(query) for key in words] for query in words]


Tree = tuple[Matrix, list[tuple[int, int, str]]]  # attention between words; dependent, head and relation


def accuracy(trees: list[Tree], relation: str, to_head: bool) -> float:
    """Share of a relation's pairs in which the maximum of one word is at the other."""
    hits = total = 0
    for weights, relations in trees:
        for dependent, head, name in relations:
            if name == relation:
                query, key = (dependent, head) if to_head else (head, dependent)
                hits += largest(weights[query]) == key
                total += 1
    return hits / total


def baseline(trees: list[Tree], relation: str) -> float:
    """Accuracy of always looking at the relation's most frequent relative position."""
    offsets = [head - dependent for _, relations in trees for dependent, head, name in relations if name == relation]
    return max(offsets.count(offset) for offset in offsets) / len(offsets)


def is_syntactic(found: float, fixed: float) -> bool:
    """At least 10 % higher than the baseline."""
    return found >= 1.1 * fixed - 1e-9


def rare_share(sentences: list[tuple[Matrix, list[str], dict[str, int]]], rarest: int, common: int = 500) -> float:
    """Share of the sentences with an uncommon token in which the head points to one of the `rarest` rarest tokens.

    Sentences are attention, tokens of the keys, and how often each token occurs in the corpus. The head points to the
    token with the largest sum of weights over the queries; a token as rare as one of the rarest counts as one of them.
    """
    hits = total = 0
    for weights, tokens, counts in sentences:
        frequent = sorted(counts, key=lambda token: -counts[token])[:common]
        if all(token in frequent for token in tokens):
            continue
        total += 1
        pointed = largest([sum(row[k] for row in weights) for k in range(len(tokens))])
        limit = sorted(counts.get(token, 0) for token in tokens)[:rarest][-1]
        hits += counts.get(tokens[pointed], 0) <= limit
    return hits / total


def is_rare_words(share: float) -> bool:
    """More than 50 % of such cases."""
    return share > 0.5
