"""Propagates relevance through single operations (docs/methods.md, LRP), for all steps of a sentence at once.

Relevance is a tensor [L, K, units]: L tokens, K explained steps. `steps(l)` returns the first and the last step (plus
one) for which token l can have relevance, so causal zeros are not multiplied.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hf_nmt_interp.attribution.threads import shares, side_by_side

Steps = Callable[[int], tuple[int, int]]
_BLOCK = 2**20  # messages at a time: few for caches, many for threads, which wait for each other between operations


class Core(NamedTuple):
    """Inputs and outputs of an attention core, head by head, for P queries and S keys of a sentence.

    Attributes:
        q: queries [H, P, D].
        k: keys [H, S, D].
        v: values [H, S, D].
        out: [H, P, D] as the model computed it, which is w v up to rounding.
        w: attention weights [H, P, S].
        scale: scale of the scores.
        scores: [H, P, S] before the softmax, -inf where a key is hidden; None for rules that do not read them.
        fixed: whether the weights are constants, so queries and keys get no relevance.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    w: Tensor
    scale: float
    scores: Tensor | None
    fixed: bool


class Division(ABC):
    """How messages z are split into parts; a unit's relevance is divided among each part's inputs in proportion."""

    @abstractmethod
    def split(self, z: Tensor) -> Iterable[tuple[float, Tensor]]:
        """Parts of the messages with their weights; may write into `z`."""

    @abstractmethod
    def split_product(self, a: Tensor, b: Tensor) -> Iterable[list[tuple[Tensor, Tensor]]]:
        """For messages a * b, the same parts as `split(a * b)` as sums of products of factors."""

    @abstractmethod
    def inverse(self, total: Tensor) -> Tensor:
        """The reciprocal of the divisor for the sum of a part."""

    def inverse_in_attention(self, total: Tensor) -> Tensor:
        """The same for units of the attention core."""
        return self.inverse(total)

    def give_back(self, passed: Tensor, came: Tensor) -> Tensor:
        """Adjust the outgoing relevance of a token [L, K, n] to the incoming [L, K, m]; may write into `passed`."""
        return rescale(passed, came)


def rescale(passed: Tensor, came: Tensor) -> Tensor:
    """Scale a token's outgoing relevance [L, K, n] to the incoming [L, K, m]; if there is none, divide evenly."""
    total, given = passed.sum(-1, keepdim=True), came.sum(-1, keepdim=True)
    lost = (total == 0) & (given != 0)
    if passed.device.type != "cpu" or lost.any():  # a GPU would have to be waited for
        passed = torch.where(lost, given / passed.shape[-1], passed)
        total = torch.where(lost, given, total)
    return passed.mul_(given / total.masked_fill(total == 0, 1))


def through_tokens(
    rule: Division,
    relevance: Tensor,
    messages: Callable[[slice], Callable[[slice, Tensor], Tensor]],
    n: int,
    steps: Steps,
) -> Tensor:
    """Relevance of the inputs of an operation that processes each token separately.

    Args:
        rule: how relevance is divided.
        relevance: [L, K, m] relevance of the operation's outputs.
        messages: returns, for some of the m units, a function that writes z [tokens, units, n] into a buffer.
        n: number of inputs of a token.
        steps: first and last explained step of a token.

    Returns:
        [L, K, n].
    """
    length, _, m = relevance.shape
    units = min(m, max(1, _BLOCK // n))
    size = min(length, max(1, _BLOCK // (units * n)))
    result = relevance.new_zeros(*relevance.shape[:2], n)
    pieces = []
    for tokens in _slices(length, size, 4):  # fixed, so results do not depend on the number of threads
        first, last = steps(tokens.start)[0], steps(tokens.stop - 1)[1]
        if first < last:
            pieces.append((tokens, relevance[tokens, first:last], result[tokens, first:last]))

    def add(share: slice) -> None:
        buffer = relevance.new_empty(size, units, n)
        for rows in _slices(m, units):  # outer loop: these rows of the weights stay in the cache for all tokens
            write = messages(rows)
            for tokens, came, into in pieces[share]:
                z = buffer[: tokens.stop - tokens.start, : rows.stop - rows.start]
                for weight, part in rule.split(write(tokens, z)):
                    into.baddbmm_(came[..., rows] * rule.inverse(part.sum(-1))[:, None], part, alpha=weight)

    side_by_side(add, shares(len(pieces)))
    return rule.give_back(result, relevance)


def _slices(length: int, size: int, count: int = 1) -> list[slice]:
    """0 to length - 1 in even slices of at most this size; their number is a multiple of `count` if possible.

    >>> _slices(5, 2, 2)
    [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None), slice(3, 5, None)]
    """
    pieces = min(length, -(-length // (size * count)) * count)
    ends = [length * number // pieces for number in range(pieces + 1)]
    return [slice(*piece) for piece in pairwise(ends)]


def multiply(share: Tensor, weight: Tensor, steps: Steps) -> Tensor:
    """share [L, K, m] times weight [m, n] on several threads, without causal zeros: [L, K, n]."""
    # indexing by a mask would synchronise a GPU
    spans = [slice(first, max(first, last)) for first, last in map(steps, range(len(share)))]
    rows = torch.cat([share[token, span] for token, span in enumerate(spans)])
    pieces = _slices(len(rows), len(rows), 4)  # fixed, so results do not depend on the number of threads
    products = torch.cat(side_by_side(lambda piece: rows[piece] @ weight, pieces))
    result = rows.new_zeros(*share.shape[:2], weight.shape[-1])
    for token, product in enumerate(products.split([span.stop - span.start for span in spans])):
        result[token, spans[token]] = product
    return result


def through_linear(
    rule: Division, relevance: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, steps: Steps
) -> Tensor:
    """Linear layer: z_ij = w_ji x_i + b_j / n, for x [L, n] and weight [m, n]."""
    n = x.shape[-1]
    constant = (x.new_zeros(len(weight)) if bias is None else bias / n)[:, None]

    def messages(rows: slice):
        b, w = constant[rows], weight[rows]
        return lambda tokens, z: torch.addcmul(b, w, x[tokens, None], out=z)

    return through_tokens(rule, relevance, messages, n, steps)


def through_norm(rule: Division, relevance: Tensor, x: Tensor, norm: Any, steps: Steps) -> Tensor:
    """Layer norm, or RMS norm (no mean, no bias): the full Jacobian times the input, for x [L, n].

    z_ij = w_j s (delta_ij - 1/n - xh_j xh_i / n) x_i + b_j / n, without the 1/n for RMS norm.
    """
    n = x.shape[-1]
    layer_norm = isinstance(norm, torch.nn.LayerNorm)
    epsilon = norm.eps if layer_norm else norm.variance_epsilon
    centred = x - x.mean(-1, keepdim=True) if layer_norm else x
    s = (centred.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    normalised = centred * s  # [L, n]
    gain = norm.weight.to(x) * s  # [L, n]
    bias = norm.bias.to(x) if layer_norm and norm.bias is not None else torch.zeros_like(x[0])
    left = torch.stack([-gain * normalised / n, (bias / n).expand_as(x)], -1)  # [L, n, 2], by unit j
    right = torch.stack([normalised * x, torch.ones_like(x)], -2)  # [L, 2, n], by input i
    if layer_norm:
        left, right = torch.cat([left, -gain[..., None] / n], -1), torch.cat([right, x[:, None]], -2)

    def messages(rows: slice):
        def write(tokens: slice, z: Tensor) -> Tensor:
            torch.bmm(left[tokens, rows], right[tokens], out=z)
            z[..., rows].diagonal(dim1=-2, dim2=-1).add_(gain[tokens, rows] * x[tokens, rows])
            return z

        return write

    return through_tokens(rule, relevance, messages, n, steps)


def through_addition(rule: Division, relevance: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Residual addition: the messages to a unit are the two summands a, b [L, n]."""
    share = a.new_zeros(*a.shape, 2)
    for weight, part in rule.split(torch.stack([a, b], -1)):
        share += weight * part * rule.inverse(part.sum(-1, keepdim=True))
    passed = torch.cat([relevance * share[:, None, :, 0], relevance * share[:, None, :, 1]], -1)
    to_a, to_b = rule.give_back(passed, relevance).chunk(2, -1)
    return to_a, to_b


def through_projection(rule: Division, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Relevance [T, n] of the inputs of one logit per step, which has relevance 1: z_i = w_i x_i + b / n."""
    result = torch.zeros_like(x)
    for factor, part in rule.split(torch.addcmul((bias / x.shape[-1])[:, None], weight, x)):
        result += factor * part * rule.inverse(part.sum(-1, keepdim=True))
    return rule.give_back(result, x.new_ones(len(x), 1))


def through_attention(rule: Division, relevance: Tensor, core: Core, steps: Steps) -> tuple[Tensor, Tensor, Tensor]:
    """Attention core, head by head: relevance of queries, keys and values.

    With J[t,d,s] = w[t,s] (v[s,d] - out[t,d]) and c the scale, unit (t, d) got w[t,s] v[s,d] from v[s,d],
    J[t,d,s] c q[t,e] k[s,e] from k[s,e] and the sum over s of that from q[t,e].

    Args:
        rule: how relevance is divided.
        relevance: relevance of the heads' outputs [H, P, K, D].
        core: inputs and outputs of the heads.
        steps: first and last explained step of a query position.
    """
    q, k, v, _, w, c, _, fixed = core
    heads, length, K, size = relevance.shape
    keys = k.shape[1]
    to_q, to_k, to_v = (relevance.new_zeros(heads, n, K, size) for n in (length, keys, keys))
    value_parts = list(rule.split(v.clone()))  # one per part of the rule; the same below
    for queries, first, last in query_blocks(length, heads * size * max(keys, size), steps):
        came = relevance[:, queries, first:last]  # [H, t, k, D]
        weights = w[:, queries]  # [H, t, S]
        key_parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in value_parts]
        query_parts: list[Tensor | None] = [None for _ in value_parts]
        if not fixed:
            slope = _differences(weights, v) * weights[:, :, None] * c  # [H, t, D, S]
            pair = q[:, queries, None] * k[:, None]  # [H, t, S, D], the last over e
            key_parts = list(rule.split_product(slope, pair))
            # [H, t, D, e]: the messages of all keys to one unit of the query, added up before they are split
            query_parts = [part for _, part in rule.split((slope @ k[:, None]) * q[:, queries, None])]
        for (factor, value), to_keys, to_query in zip(value_parts, key_parts, query_parts, strict=True):
            total = weights @ value  # [H, t, D]
            for a, b in to_keys:
                total = total + (a @ b.sum(-1, keepdim=True)).squeeze(-1)
            if to_query is not None:
                total = total + to_query.sum(-1)
            share = came * rule.inverse_in_attention(total).mul_(factor)[:, :, None]  # [H, t, k, D]
            to_v[:, :, first:last] += torch.einsum("hts,htkd->hskd", weights, share) * value[:, :, None]
            for a, b in to_keys:
                to_k[:, :, first:last] += torch.einsum("htks,htse->hske", share @ a, b)
            if to_query is not None:
                to_q[:, queries, first:last] += share @ to_query
    return rescale_heads(relevance, to_q, to_k, to_v, w)


def query_blocks(length: int, messages: int, steps: Steps) -> Iterator[tuple[slice, int, int]]:
    """Blocks of queries, for `messages` to each, with the first and the last explained step (plus one) of a block."""
    block = max(1, _BLOCK // messages)
    for start in range(0, length, block):
        queries = slice(start, min(start + block, length))
        first, last = steps(start)[0], steps(queries.stop - 1)[1]
        if first < last:
            yield queries, first, last


def _differences(w: Tensor, v: Tensor) -> Tensor:
    """v[s,d] - out[t,d], as [H, t, D, S], for w [H, t, S], whose rows sum to 1, and v [H, S, D].

    Values are taken relative to that of the largest weight, so nothing is lost to rounding where out is nearly equal
    to it, or where a repeated token has the same value.
    """
    largest = w.argmax(-1, keepdim=True)  # [H, t, 1]
    nearest = v.gather(1, largest.expand(*largest.shape[:2], v.shape[-1]))  # [H, t, D]
    relative = v[:, None] - nearest[:, :, None]  # [H, t, S, D]
    return relative.sub_(w[:, :, None] @ relative).transpose(-1, -2)


def rescale_heads(relevance: Tensor, to_q: Tensor, to_k: Tensor, to_v: Tensor, w: Tensor):
    """Scale each head's outgoing relevance to the incoming one; if nothing was passed on, v gets it by the weights."""
    came = relevance.sum((1, 3))  # [H, K]
    total = to_q.sum((1, 3)) + to_k.sum((1, 3)) + to_v.sum((1, 3))
    lost = (total == 0) & (came != 0)
    if w.device.type != "cpu" or lost.any():
        by_weights = torch.einsum("hts,htkd->hskd", w, relevance)
        to_v = torch.where(lost[:, None, :, None], by_weights, to_v)
        total = torch.where(lost, by_weights.sum((1, 3)), total)  # calibrated weights may not sum to 1
    factor = (came / total.masked_fill(total == 0, 1))[:, None, :, None]
    return to_q.mul_(factor), to_k.mul_(factor), to_v.mul_(factor)
