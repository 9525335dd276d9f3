"""Links and entropy of subwords as the authors' code of ding2019 takes them, slow and literal."""

import math


def links(scores, source_words, target_words) -> set[tuple[int, int]]:
    """Union over target subwords of (word of the best source subword, own word); None marks special tokens."""
    found = set()
    for t, target in enumerate(target_words):
        best = None
        for i, source in enumerate(source_words):
            if source is not None and (best is None or scores[t][i] > scores[t][best]):
                best = i
        if target is not None and best is not None:
            found.add((source_words[best], target))
    return found


def entropy(sentences) -> float:
    """Mean over sentences of the mean over their steps of the entropy of max(0, score), normalised over tokens."""
    means = []
    for scores in sentences:
        values = []
        for row in scores:
            total = sum(max(0.0, float(x)) for x in row)
            if total > 0:
                shares = [max(0.0, float(x)) / total for x in row]
                values.append(-sum(p * math.log(p) for p in shares if p > 0))
        if values:
            means.append(sum(values) / len(values))
    return sum(means) / len(means)
