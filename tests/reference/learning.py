"""How attention learns (Snell et al. 2021), slow and literal: probe, proxy, IBM Model 1, influence of words.

One unpadded sentence at a time, float64; the models are holders of weights only.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.reference.forward import describe, double, run
from tests.reference.recurrent import FORWARDS, classifier
from tests.reference.shift import shifted_right


def _forward(model) -> tuple[Tensor, Tensor, Callable]:
    """Embeddings of source and target [V, d], and the function from some of them to logits, of all or one position."""
    name = type(model).__name__
    if name == "LSTMAttentionForSequenceClassification":
        table = double(model.embed_tokens.weight)
        return table, table, lambda source, _, only=None: classifier(model, source, only)[0][None]
    if name == "BagOfWordsProxy":
        table = double(model.embed_tokens.weight)
        return table, table, lambda source, target, only=None: proxy(model, source, len(target), only)
    if forward := FORWARDS.get(name):
        tables = (double(stack.embed_tokens.weight) for stack in (model.encoder, model.decoder))
        return *tables, lambda source, target, only=None: forward(model, source, target, only)[0]
    network = describe(model)
    tables = network.encoder.embedding, network.decoder.embedding
    return *tables, lambda source, target, only=None: run(network, source, target, only=only).logits.x


def _read(model, labels: Tensor) -> Tensor:
    """What the decoder reads; for models without one, just as many."""
    return shifted_right(model, labels[None])[0] if hasattr(model.config, "decoder_start_token_id") else labels


def proxy(model, source: Tensor, steps: int, only: int | None = None) -> Tensor:
    """Logits [T, V]: 1 / L sum_l W e_l for every t (eq. 5), or W e_l of one position (eq. 6)."""
    words = [double(model.projection.weight) @ e for e in source]
    logits = sum(words) / len(words) if only is None else words[only]
    return torch.stack([logits] * steps)


def probe(model, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """beta [T, S]: the probability of y_t with all attention on x_l (eq. 4, 6, 9); and all logits [T, S, V]."""
    sources, targets, forward = _forward(model)
    read = targets[_read(model, labels)] if len(targets) > 0 else targets
    columns = [forward(sources[input_ids], read, only) for only in range(len(input_ids))]  # S of [T, V]
    gamma = torch.stack(columns, 1)
    beta = torch.zeros(gamma.shape[:2], dtype=torch.float64)
    for t, label in enumerate(labels):
        for position in range(len(input_ids)):
            beta[t, position] = torch.softmax(gamma[t, position], -1)[label]
    return beta, gamma


def flips(model, input_ids: Tensor, labels: Tensor, replacement: str = "worst") -> Tensor:
    """Delta [T, S]: max over words w of (e_w - e_l) . dL_t/de_l, or with e_w = 0; L_t = -log p(y_t)."""
    sources, targets, forward = _forward(model)
    read = targets[_read(model, labels)]
    found = torch.zeros(len(labels), len(input_ids), dtype=torch.float64)
    for t, label in enumerate(labels):
        source = sources[input_ids].clone().requires_grad_()
        loss = -torch.log_softmax(forward(source, read)[t], -1)[label]
        (gradient,) = torch.autograd.grad(loss, source)
        for position in range(len(input_ids)):
            words = [torch.zeros_like(source[0])] if replacement == "zero" else sources
            found[t, position] = max((word - source[position]) @ gradient[position] for word in words)
    return found


def counts(pairs: Sequence[tuple[Sequence, Sequence]]) -> dict:
    """C[i, o] = sum over pairs, l and t of 1 / L [x_l = i] [y_t = o] (eq. 16)."""
    table: dict = defaultdict(float)
    for source, target in pairs:
        for x in source:
            for y in target:
                table[x, y] += 1 / len(source)
    return table


def translation(table: dict) -> dict:
    """Trans(o | i) = C[i, o] / sum_o' C[i, o'] (eq. 17)."""
    totals: dict = defaultdict(float)
    for (x, _), count in table.items():
        totals[x] += count
    return {(x, y): count / totals[x] for (x, y), count in table.items()}


def alignment(trans: dict, source: Sequence, target: Sequence) -> list[list[float]]:
    """alpha[t][l] = Trans(y_t | x_l) / sum_l' Trans(y_t | x_l') (eq. 18, 19)."""
    rows = []
    for y in target:
        betas = [trans.get((x, y), 0.0) for x in source]
        rows.append([beta / sum(betas) for beta in betas])
    return rows


def expectation_maximisation(pairs: Sequence[tuple[Sequence, Sequence]], iterations: int) -> dict:
    """Trans after some iterations of IBM Model 1, the first from uniform alignments (Brown et al. 1993)."""
    trans = translation(counts(pairs))
    for _ in range(iterations - 1):
        table: dict = defaultdict(float)
        for source, target in pairs:
            for y, row in zip(target, alignment(trans, source, target), strict=True):
                for x, weight in zip(source, row, strict=True):
                    table[x, y] += weight
        trans = translation(table)
    return trans


def logistic_logits(weight: Sequence[Sequence[float]], words: Sequence[int]) -> list[float]:
    """beta_log x, x the counts of words divided by the length (eq. 55)."""
    x = [words.count(word) / len(words) for word in range(len(weight[0]))]
    return [sum(b * share for b, share in zip(row, x, strict=True)) for row in weight]


def logistic_loss(weight: Sequence[Sequence[float]], texts: Sequence[tuple[Sequence[int], int]], l2: float) -> float:
    """mean over texts of -log softmax(beta_log x)_y, + l2 / 2 times the sum of all squares of beta_log."""
    total = 0.0
    for words, label in texts:
        logits = logistic_logits(weight, words)
        total += math.log(sum(math.exp(z) for z in logits)) - logits[label]
    return total / len(texts) + l2 / 2 * sum(b * b for row in weight for b in row)


def attended_loss(alpha: Sequence[float], gamma: Sequence[Sequence[float]], label: int) -> float:
    """-log softmax(sum_l alpha_l gamma_l)_y (eq. 28)."""
    z = [sum(a * row[o] for a, row in zip(alpha, gamma, strict=True)) for o in range(len(gamma[0]))]
    return math.log(sum(math.exp(x) for x in z)) - z[label]


def best_of_a_grid(gamma: Sequence[Sequence[float]], label: int, parts: int) -> tuple[float, list[float]]:
    """The lowest loss over all weights of three positions that are multiples of 1 / parts, and these weights."""
    grid = ([i, j, parts - i - j] for i in range(parts + 1) for j in range(parts + 1 - i))
    weights = ([n / parts for n in point] for point in grid)
    return min((attended_loss(alpha, gamma, label), alpha) for alpha in weights)
