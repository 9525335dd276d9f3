"""The alignment head and its losses, word by word from METHODS and the papers, in Python's floats."""

import math

Matrix = list[list[float]]


def linear(x: list[float], weight: Matrix, bias: list[float]) -> list[float]:
    """W x + b."""
    return [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def layer_norm(x: list[float], weight: list[float], bias: list[float], epsilon: float = 1e-5) -> list[float]:
    """(x - mean) / deviation * gain + bias."""
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + epsilon)
    return [(v - mean) / deviation * w + b for v, w, b in zip(x, weight, bias, strict=True)]


def soft_links(states: Matrix, memory: Matrix, parts: dict[str, list], heads: int) -> Matrix:
    """A[t][s], the mean over heads of softmax_s(q_t k_s / sqrt(d_k)), of one sentence without padding."""
    size = len(states[0]) // heads
    keys = [linear(h, parts["k_proj.weight"], parts["k_proj.bias"]) for h in memory]
    found = []
    for state in states:
        normed = layer_norm(state, parts["norm.weight"], parts["norm.bias"])
        query = linear(normed, parts["q_proj.weight"], parts["q_proj.bias"])
        row = [0.0] * len(memory)
        for head in range(heads):
            own = range(head * size, (head + 1) * size)
            scores = [sum(query[d] * key[d] for d in own) / math.sqrt(size) for key in keys]
            total = sum(math.exp(score) for score in scores)
            row = [a + math.exp(score) / total / heads for a, score in zip(row, scores, strict=True)]
        found.append(row)
    return found


def link_mass(soft: Matrix, links: Matrix) -> float:
    """-sum over t with links of log sum of A[t][s] over linked s."""
    total = 0.0
    for row, own in zip(soft, links, strict=True):
        if any(own):
            total -= math.log(sum(a for a, linked in zip(row, own, strict=True) if linked))
    return total


def link_entropy(soft: Matrix, links: Matrix) -> float:
    """-sum over t with links of the mean of log A[t][s] over linked s (Garg et al. 2019, eq. 7)."""
    total = 0.0
    for row, own in zip(soft, links, strict=True):
        if any(own):
            total -= sum(math.log(a) for a, linked in zip(row, own, strict=True) if linked) / sum(own)
    return total


def disagreement(forward: Matrix, backward: Matrix) -> float:
    """sum of (A[t][s] - B[s][t])^2."""
    return sum((a - backward[s][t]) ** 2 for t, row in enumerate(forward) for s, a in enumerate(row))
