"""Gradients of every step's score with respect to embeddings or encoder states, all steps from one forward pass.

`step_gradients` computes them in one of two ways: `_Walk` is the chain rule along the parts of a translator, which
multiplies no causal zeros and no padding; autograd, for all steps at once, serves models that have parts of their own.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.attention import attention_weights
from hf_nmt_interp.attribution.tape import REGISTERING, Tape
from hf_nmt_interp.attribution.threads import shares, side_by_side, thread_count, workers
from hf_nmt_interp.decoding.batch import Batch, label_log_probs, run_model
from hf_nmt_interp.models.families import Attention, FeedForward, Parts, Stack, Sublayer

Reduce = Callable[[Tensor, Tensor], Tensor]  # gradients and values [..., d] -> scores [...]
Score = Callable[[Tensor, Tensor], Tensor]  # logits and log-probabilities of the labels [B, T] -> what is explained
Change = Callable[[Tensor], Tensor]
_CACHED_ROWS = 2048  # gradients carried back at a time: enough for fast products, few enough for caches


def step_gradients(
    model: PreTrainedModel,
    parts: Parts,
    batch: Batch,
    leaves: Sequence[str],
    score: Score,
    reduce: Reduce,
    *,
    noise: Tensor | None = None,
    rows: int = _CACHED_ROWS,
) -> tuple[list[Tensor], Tensor]:
    """Gradients of the score of every step with respect to every vector of the leaves, reduced to a number each.

    Args:
        model: any supported translator, in evaluation mode.
        parts: of the model.
        batch: of B sentence pairs, which autograd takes (see `Batch.take`).
        leaves: some of "source" and "decoder" (embeddings, scaled, before positions) and "memory" (encoder states).
        score: what is differentiated.
        reduce: from the gradient and the vector to a number.
        noise: [B, S, d], added to the source embeddings; `reduce` still gets the clean ones.
        rows: gradients, of one vector for one step, that are held at a time.

    Returns:
        For each leaf its numbers [B, T, L], 0 at padding, and log-probabilities [B, T] of the labels.
    """
    by_hand = is_plain(model)  # before other threads hang hooks on it
    with workers(model.device):
        budget = max(1, rows // thread_count())

        def some(share: slice) -> tuple[list[Tensor], Tensor]:
            part = None if noise is None else noise[share]
            return _gradients(model, parts, batch.take(share), leaves, score, reduce, part, budget, by_hand)

        pieces = shares(len(batch.labels)) if len(batch.labels) > 1 else [slice(None)]
        found = side_by_side(some, pieces)
    numbers, log_probs = zip(*found, strict=True)
    together = [_interleave(tensors) for tensors in (*zip(*numbers, strict=True), log_probs)]
    return together[:-1], together[-1]


def _interleave(pieces: Sequence[Tensor]) -> Tensor:
    """The rows [B, ...] of which every piece has every n-th, as `shares` cuts them."""
    if len(pieces) == 1:
        return pieces[0]
    found = pieces[0].new_empty(sum(map(len, pieces)), *pieces[0].shape[1:])
    for first, piece in enumerate(pieces):
        found[first :: len(pieces)] = piece
    return found


def _gradients(
    model: PreTrainedModel,
    parts: Parts,
    batch: Batch,
    leaves: Sequence[str],
    score: Score,
    reduce: Reduce,
    noise: Tensor | None,
    rows: int,
    by_hand: bool,
) -> tuple[list[Tensor], Tensor]:
    """`step_gradients` of a batch that one thread runs forward."""
    clean: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}
    by_hand = by_hand and parts.has_layers

    def leaf(name: str) -> Change:
        def change(x: Tensor) -> Tensor:
            clean[name] = x.detach()
            noisy = clean[name] if noise is None or name != "source" else clean[name] + noise
            inputs[name] = noisy.clone().requires_grad_()
            return inputs[name]

        return change

    with ExitStack() as context:
        context.enter_context(torch.enable_grad())
        if not by_hand:
            context.enter_context(SingleOperations())
        for name in leaves:
            context.enter_context(_LEAVES[name](parts, leaf(name)))
        cores = [attention.core for attention in parts.all_attentions]
        tape = context.enter_context(Tape([*parts.operations[:-1], *cores] if by_hand else [parts.projection]))
        explained, log_probs = _step_scores(run_model(model, batch.inputs()).logits, batch.labels, score)
        state = tape.output(parts.decoder.operations[-1]) if by_hand else tape.input(parts.projection)
        (gradient,) = torch.autograd.grad(explained.sum(), state, retain_graph=not by_hand)
    if by_hand:
        found = _by_hand(_Record(parts, batch, tape, gradient, clean), reduce, min(rows, _CACHED_ROWS))
    else:
        steps = max(1, rows // sum(x.shape[0] * x.shape[1] for x in inputs.values())) if parts.cross else 0
        found = _by_autograd(state, gradient, inputs, clean, reduce, steps)
    real = batch.attention_mask[:, None] != 0
    return [found[name] * (1 if name == "decoder" else real) for name in leaves], log_probs.detach()


def _step_scores(logits: Tensor, labels: Tensor, score: Score) -> tuple[Tensor, Tensor]:
    """What is differentiated and log-probabilities [B, T]; the logits, the largest tensor, are not kept."""
    log_probs = label_log_probs(logits, labels)
    logit = logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return score(logit, log_probs).masked_fill(labels == -100, 0), log_probs


@contextmanager
def embeddings(stack: Stack, change: Change) -> Iterator[None]:
    """Context in which the embeddings [B, L, d] that a stack looks up (scaled, before positions) are changed.

    Only in forward passes of the calling thread, and only inside the stack: both stacks may share the module.
    """
    thread, inside = threading.get_ident(), False

    def enter(*_) -> None:
        nonlocal inside
        inside = inside or threading.get_ident() == thread

    def leave(*_) -> None:
        nonlocal inside
        inside = inside and threading.get_ident() != thread

    def look_up(module: nn.Module, args: tuple, output: Tensor) -> Tensor | None:
        nonlocal inside
        if inside and threading.get_ident() == thread:
            inside = False  # LED then looks up padding to fill its window
            return change(output * stack.scale) / stack.scale
        return None

    with REGISTERING:
        handles = [
            stack.module.register_forward_pre_hook(enter),
            stack.module.register_forward_hook(leave, always_call=True),
            stack.embedding.register_forward_hook(look_up),
        ]
    try:
        yield
    finally:
        with REGISTERING:
            for handle in handles:
                handle.remove()


@contextmanager
def _encoder_states(stack: Stack, change: Change) -> Iterator[None]:
    """Context in which what an encoder gives [B, S, d] is changed, in forward passes of the calling thread."""
    thread = threading.get_ident()

    def replace(module: nn.Module, args: tuple, output: Any) -> None:
        if threading.get_ident() == thread:
            output.last_hidden_state = change(output.last_hidden_state)

    with REGISTERING:
        handle = stack.module.register_forward_hook(replace)
    try:
        yield
    finally:
        with REGISTERING:
            handle.remove()


_LEAVES: Mapping[str, Callable[[Parts, Change], AbstractContextManager[None]]] = {
    "source": lambda parts, change: embeddings(parts.encoder, change),
    "decoder": lambda parts, change: embeddings(parts.decoder, change),
    "memory": lambda parts, change: _encoder_states(parts.encoder, change),
}


def is_plain(model: PreTrainedModel) -> bool:
    """Whether a model computes what its family computes: no modules, hooks or attention functions from elsewhere."""
    own = all(
        type(module).__module__.startswith(("torch.nn.", "transformers."))
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
        for module in model.modules()
    )
    configs = [model.config, *(getattr(model.config, name, None) for name in ("encoder", "decoder"))]
    used = {getattr(config, "_attn_implementation", None) for config in configs}
    return own and used <= {None, "eager", "sdpa", "flash_attention_2", "flash_attention_3"}


# -------------------------------------------------------------------------------------------------------- by autograd
class SingleOperations(TorchFunctionMode):
    """Context of attention and LSTMs by single operations: the backward passes of fused kernels cannot be batched."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Every torch function of this thread passes here."""
        if func is F.scaled_dot_product_attention:
            func = _attention
        elif func is torch.lstm and len(args[2]) == 4:  # one layer, one direction, with biases
            func = _lstm
        return func(*args, **(kwargs or {}))


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *args, **kwargs) -> Tensor:
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -torch.inf)
    return torch.ops.aten._scaled_dot_product_attention_math(query, key, value, attn_mask, *args, **kwargs)[0]


def _lstm(x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], *options) -> tuple[Tensor, Tensor, Tensor]:
    batch_first = options[-1]
    to_gates, from_state, *biases = weights
    gates = F.linear(x.transpose(0, 1) if batch_first else x, to_gates, biases[0] + biases[1])  # [L, B, 4 n]
    h, c = (one[0] for one in state)
    states = []
    for step in gates.unbind():
        i, f, g, o = (step + F.linear(h, from_state)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states, 1 if batch_first else 0), h[None], c[None]


def _by_autograd(
    state: Tensor,
    gradient: Tensor,
    inputs: Mapping[str, Tensor],
    clean: Mapping[str, Tensor],
    reduce: Reduce,
    chunk: int,
) -> dict[str, Tensor]:
    """Numbers [B, T, L] of each leaf, a chunk of steps at a time; 0 is for models that may have no batched way back.

    The score of a step depends on its own state: `gradient` [B, T, n] is that of all scores for `state` [B, T, n].
    ProphetNet's states are [B, streams, T, n].
    """
    steps = torch.arange(state.shape[-2], device=state.device)

    def one_step(t: Tensor) -> dict[str, Tensor]:
        here = gradient * (steps == t)[:, None]
        gradients = torch.autograd.grad(state, list(inputs.values()), here, retain_graph=True)
        return {name: reduce(g, clean[name]) for name, g in zip(inputs, gradients, strict=True)}

    if not chunk:
        found = [one_step(t) for t in steps]
        return {name: torch.stack([numbers[name] for numbers in found], 1) for name in inputs}
    return torch.func.vmap(one_step, out_dims=1, chunk_size=chunk)(steps)


# ------------------------------------------------------------------------------------------------------------ by hand
@dataclass
class _Record:
    """One forward pass, for `_Walk`: the tape of the model's operations and attentions, and what belongs to it."""

    parts: Parts
    batch: Batch
    tape: Tape
    gradient: Tensor  # [B, T, d] of each step's score with respect to the decoder's last state of that step
    clean: dict[str, Tensor]  # [B, L, d] of each leaf

    def __post_init__(self) -> None:
        with torch.no_grad():
            self.weights = {
                a.core: attention_weights(self.tape, a, self.batch.attention_mask) for a in self.parts.all_attentions
            }


def _by_hand(record: _Record, reduce: Reduce, rows: int) -> dict[str, Tensor]:
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
    """Consecutive sentences, given as (S, T), that have at most `rows` gradients (step, token) when padded alike.

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
    """The way back from the decoder's last state to the embeddings, for some sentences and steps of a record."""

    def __init__(self, record: _Record, sentences: slice, steps: slice) -> None:
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
        """Gradient of a sublayer's input; what flows to the encoder's output is added to `memory`."""
        if not sub.norm_first:
            gradient = self._norm(gradient, sub.norm, rows)
        # a branch reads the gradient before it adds to `into`, so that the sum of residual and branch needs no copy
        into = torch.zeros_like(gradient) if sub.norm_first else gradient
        if isinstance(sub.branch, FeedForward):
            self._feed_forward(gradient, sub.branch, rows, into)
        else:
            self._attention(gradient, sub.branch, rows, into, memory)
        return gradient + self._norm(into, sub.norm, rows) if sub.norm_first else into

    def _feed_forward(self, gradient: Tensor, ffn: FeedForward, rows: _Rows, into: Tensor) -> None:
        gradient = gradient @ ffn.outer.weight
        x = self._of(self.record.tape.output(ffn.inner), rows).requires_grad_()
        with torch.enable_grad():
            active = ffn.activation(x)
            slope = torch.autograd.grad(active.sum(), x)[0]  # [B, L, n]
        if ffn.gate is not None:
            into.addmm_(gradient * rows.pick(active.detach()), ffn.gate.weight)
            slope = slope * self._of(self.record.tape.output(ffn.gate), rows)
        into.addmm_(gradient.mul_(rows.pick(slope)), ffn.inner.weight)

    def _attention(self, gradient: Tensor, attention: Attention, rows: _Rows, into: Tensor, memory: Tensor) -> None:
        """Of O = W V, W = softmax(c Q K'): dV = W' dO, dW = dO V', dA = c W (dW - sum W dW), dQ = dA K, dK = dA' Q."""
        keys, keys_into = (self.source, memory) if attention.kind == "cross" else (rows, into)

        def heads(module: nn.Linear, of: _Rows) -> Tensor:  # [B, L, H * D] -> [B, H, L, D]
            x = self._of(self.record.tape.output(module), of)
            return x.unflatten(-1, (-1, attention.head_size)).transpose(1, 2)

        q, k, v = heads(attention.query, rows), heads(attention.key, keys), heads(attention.value, keys)
        w = self.record.weights[attention.core][self.sentences, :, : rows.shape[1], : keys.shape[1]]
        grid = rows.to_grid(gradient @ attention.output.weight)  # [B, L, K, H * D]
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
            target.addmm_(of.from_grid(found.permute(0, 2, 3, 1, 4).flatten(-2)), module.weight)
