"""Explicit gradients: the chain rule along the parts of a translator, without causal zeros and padding."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hf_nmt_interp.attribution.attention import attention_weights
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.attribution.threads import side_by_side, thread_count
from hf_nmt_interp.decoding.batch import Batch
from hf_nmt_interp.models.families import Attention, FeedForward, Parts, Sublayer

Reduce = Callable[[Tensor, Tensor], Tensor]  # gradients and values [..., d] -> scores [...]


@dataclass
class Record:
    """One forward pass, for `_Walk`: the tape of the model's operations and attentions, and related tensors."""

    parts: Parts
    batch: Batch
    tape: Tape
    gradient: Tensor  # [B, T, d] of each step's score with respect to the decoder's last state of that step
    clean: dict[str, Tensor]  # [B, L, d] of each leaf
    products: torch.dtype | None = None  # dtype in which float32 weights are multiplied, None for their own

    def __post_init__(self) -> None:
        with torch.no_grad():
            self.weights = {
                a.core: attention_weights(self.tape, a, self.batch.attention_mask) for a in self.parts.all_attentions
            }
        self._narrow: dict[Tensor, Tensor] = {}

    def narrow(self, weight: Tensor) -> Tensor:
        """A weight in the dtype of products; converted once for all walks."""
        if self.products is None or weight.dtype != torch.float32:
            return weight
        if weight not in self._narrow:
            self._narrow[weight] = weight.to(self.products)
        return self._narrow[weight]


def carry_back(record: Record, reduce: Reduce, rows: int) -> dict[str, Tensor]:
    """Numbers [B, T, L] of each leaf, some sentences and steps at a time."""
    labels, lengths = record.batch.labels, [record.batch.source_lengths, record.batch.target_lengths]
    found = {name: x.new_zeros(*labels.shape, x.shape[1]) for name, x in record.clean.items()}
    walks = []
    for some in _groups(list(zip(*lengths, strict=True)), rows):
        S, T = (max(side[some]) for side in lengths)
        steps, count = max(1, rows // max(S, T)), min(thread_count(), T)
        if steps * count < T:
            walks += [_Walk(record, some, slice(t, min(t + steps, T))) for t in range(0, T, steps)]
        else:  # late steps have more tokens before them: each thread gets every n-th
            walks += [_Walk(record, some, slice(t, T, count)) for t in range(count)]

    def run(walk: _Walk) -> None:
        for name, numbers in walk.scores(reduce).items():
            found[name][walk.sentences, walk.steps, : numbers.shape[-1]] = numbers

    side_by_side(run, walks)
    return found


def _groups(lengths: Sequence[tuple[int, int]], rows: int) -> Iterator[slice]:
    """Consecutive sentences, given as (S, T), that have at most `rows` gradients (step, token) when padded together.

    >>> list(_groups([(3, 2), (3, 2), (9, 9)], rows=20))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    start, S, T = 0, 0, 0
    for b, (source, target) in enumerate(lengths):
        S, T = max(S, source), max(T, target)
        if b > start and (b + 1 - start) * T * max(S, T) > rows:
            yield slice(start, b)
            start, S, T = b, source, target
    yield slice(start, len(lengths))


class _Rows:
    """Which (sentence, token, step) triples can have a gradient: the rows of a matrix [rows, units].

    Args:
        possible: [B, L, K] bool.
    """

    def __init__(self, possible: Tensor) -> None:
        self.shape = possible.shape
        self.at = possible.flatten().nonzero()[:, 0]  # in the grid [B * L * K]
        self.token = self.at // self.shape[2]  # in [B * L]
        self.all = len(self.at) == possible.numel()

    def pick(self, x: Tensor) -> Tensor:
        """Each row's token of activations [B, L, n]."""
        return x.flatten(0, 1).index_select(0, self.token)

    def to_grid(self, rows: Tensor) -> Tensor:
        """[rows, n] -> [B, L, K, n], zero elsewhere."""
        if not self.all:
            rows = rows.new_zeros(self.shape.numel(), rows.shape[-1]).index_copy_(0, self.at, rows)
        return rows.unflatten(0, self.shape)

    def from_grid(self, grid: Tensor) -> Tensor:
        """[B, L, K, n] -> [rows, n]."""
        rows = grid.flatten(0, 2)
        return rows if self.all else rows.index_select(0, self.at)


class _Walk:
    """The backward walk from the decoder's last state to the embeddings, for some sentences and steps of a record."""

    def __init__(self, record: Record, sentences: slice, steps: slice) -> None:
        self.record, self.sentences, self.steps = record, sentences, steps
        labels = record.batch.labels[sentences]
        explained = (labels != -100)[:, None, steps]  # [B, 1, K]
        token = torch.arange(labels.shape[1], device=labels.device)
        step, token = token[steps], token[: steps.stop, None]
        self.own, self.later = _Rows((token == step) & explained), _Rows((token <= step) & explained)
        mask = record.batch.attention_mask[sentences] != 0
        longest = int(mask.sum(-1).max())  # of these sentences: the batch may be padded further
        self.source = _Rows(mask[:, :longest, None] & explained)

    @torch.no_grad()
    def scores(self, reduce: Reduce) -> dict[str, Tensor]:
        """Numbers of each leaf: [B, K, longest source], of the decoder's embeddings [B, K, last step]."""
        parts, rows = self.record.parts, self.own
        found: dict[str, Tensor] = {}
        gradient = rows.pick(self._of(self.record.gradient, rows))
        memory = gradient.new_zeros(len(self.source.at), parts.attentions("cross")[0].key.in_features)
        gradient = self._norm(gradient, parts.decoder.final_norm, rows)
        for sub in reversed(parts.decoder.sublayers):
            if rows is self.own and isinstance(sub.branch, Attention) and sub.branch.kind == "decoder":
                gradient, rows = self.later.from_grid(rows.to_grid(gradient)), self.later
            gradient = self._sublayer(gradient, sub, rows, memory)
        if "decoder" in self.record.clean:
            gradient = self._norm(gradient, parts.decoder.embedding_norm, rows)
            found["decoder"] = self._reduce(gradient, rows, "decoder", reduce)
        if "memory" in self.record.clean:
            found["memory"] = self._reduce(memory, self.source, "memory", reduce)
        if "source" in self.record.clean:
            gradient = self._norm(memory, parts.encoder.final_norm, self.source)
            for sub in reversed(parts.encoder.sublayers):
                gradient = self._sublayer(gradient, sub, self.source, memory)
            gradient = self._norm(gradient, parts.encoder.embedding_norm, self.source)
            found["source"] = self._reduce(gradient, self.source, "source", reduce)
        return found

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        """x W [rows, n], in the dtype of products."""
        weight = self.record.narrow(weight)
        return x.to(weight) @ weight

    def _add(self, into: Tensor, x: Tensor, weight: Tensor) -> None:
        """into += x W."""
        if self.record.products is None:
            into.addmm_(x, weight)
        else:
            into += self._product(x, weight)

    def _of(self, x: Tensor, rows: _Rows) -> Tensor:
        return x[self.sentences, : rows.shape[1]].detach()

    def _reduce(self, gradient: Tensor, rows: _Rows, leaf: str, reduce: Reduce) -> Tensor:
        found = reduce(gradient, rows.pick(self._of(self.record.clean[leaf], rows)))
        return rows.to_grid(found[:, None])[..., 0].transpose(1, 2)

    def _norm(self, gradient: Tensor, norm: nn.Module | None, rows: _Rows) -> Tensor:
        if norm is None:
            return gradient
        x = rows.pick(self._of(self.record.tape.input(norm), rows)).requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(norm(x), x, gradient)[0]

    def _sublayer(self, gradient: Tensor, sub: Sublayer, rows: _Rows, memory: Tensor) -> Tensor:
        """Gradient of a sublayer's input; the gradient of the encoder's output is added to `memory`."""
        if not sub.norm_first:
            gradient = self._norm(gradient, sub.norm, rows)
        # a branch reads the gradient before it adds to `into`, so the sum of residual and branch needs no copy
        into = torch.zeros_like(gradient) if sub.norm_first else gradient
        if isinstance(sub.branch, FeedForward):
            self._feed_forward(gradient, sub.branch, rows, into)
        else:
            self._attention(gradient, sub.branch, rows, into, memory)
        return gradient + self._norm(into, sub.norm, rows) if sub.norm_first else into

    def _feed_forward(self, gradient: Tensor, ffn: FeedForward, rows: _Rows, into: Tensor) -> None:
        gradient = self._product(gradient, ffn.outer.weight)
        x = self._of(self.record.tape.output(ffn.inner), rows).requires_grad_()
        with torch.enable_grad():
            active = ffn.activation(x)
            slope = torch.autograd.grad(active.sum(), x)[0]  # [B, L, n]
        if ffn.gate is not None:
            self._add(into, gradient * rows.pick(active.detach().to(gradient)), ffn.gate.weight)
            slope = slope * self._of(self.record.tape.output(ffn.gate), rows)
        self._add(into, gradient.mul_(rows.pick(slope.to(gradient))), ffn.inner.weight)

    def _attention(self, gradient: Tensor, attention: Attention, rows: _Rows, into: Tensor, memory: Tensor) -> None:
        """Of O = W V, W = softmax(c Q K'): dV = W' dO, dW = dO V', dA = c W (dW - sum W dW), dQ = dA K, dK = dA' Q."""
        keys, keys_into = (self.source, memory) if attention.kind == "cross" else (rows, into)

        def heads(module: nn.Linear, of: _Rows) -> Tensor:  # [B, L, H * D] -> [B, H, L, D]
            x = self._of(self.record.tape.output(module), of)
            return x.unflatten(-1, (-1, attention.head_size)).transpose(1, 2)

        q, k, v = heads(attention.query, rows), heads(attention.key, keys), heads(attention.value, keys)
        w = self.record.weights[attention.core][self.sentences, :, : rows.shape[1], : keys.shape[1]]
        grid = rows.to_grid(self._product(gradient, attention.output.weight).to(gradient))  # [B, L, K, H * D]
        out = grid.unflatten(-1, (-1, attention.head_size)).permute(0, 3, 1, 2, 4).contiguous()  # [B, H, L, K, D]
        to_v = w.transpose(-1, -2) @ out.flatten(-2)  # [B, H, S, K * D]
        to_w = (out.flatten(2, 3) @ v.transpose(-1, -2)).view(*out.shape[:4], -1)  # [B, H, L, K, S]
        w = w[:, :, :, None]
        to_a = to_w.sub_((to_w * w).sum(-1, keepdim=True)).mul_(w * attention.scale)
        to_q = to_a.flatten(2, 3) @ k  # [B, H, L * K, D]
        to_k = to_a.permute(0, 1, 4, 3, 2).flatten(2, 3) @ q  # [B, H, S * K, D]
        for module, of, target, found in (
            (attention.query, rows, into, to_q),
            (attention.key, keys, keys_into, to_k),
            (attention.value, keys, keys_into, to_v),
        ):
            found = found.reshape(*found.shape[:2], *of.shape[1:], -1)  # [B, H, L, K, D]
            self._add(target, of.from_grid(found.permute(0, 2, 3, 1, 4).flatten(-2)), module.weight)
