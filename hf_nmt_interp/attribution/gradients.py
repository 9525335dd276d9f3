"""Gradients of every step's score with respect to every input embedding, all steps of a batch from one forward pass.

`Walk` is the chain rule by hand along the parts of a translator: it multiplies no causal zeros and no padding.
`autograd_scores` asks autograd for all steps at once; it serves models that have parts of their own.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.attention import attention_weights
from hf_nmt_interp.attribution.base import Batch
from hf_nmt_interp.attribution.tape import REGISTERING, Tape
from hf_nmt_interp.models.families import Attention, FeedForward, Parts, Stack, Sublayer

Reduce = Callable[[Tensor, Tensor], Tensor]  # gradients and embeddings [..., d] -> scores [...]


@contextmanager
def embeddings(stack: Stack, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
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
        if inside and threading.get_ident() == thread:
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


def autograd_scores(
    state: Tensor, gradient: Tensor, inputs: Sequence[Tensor], clean: Sequence[Tensor], reduce: Reduce, chunk: int
) -> list[Tensor]:
    """Scores of embeddings by autograd, a chunk of steps at a time.

    Args:
        state: [B, T, n] decoder states; the score of a step depends on its own state.
        gradient: [B, T, n] of the scores with respect to them.
        inputs: embeddings [B, L, d] that the gradients are taken for.
        clean: embeddings [B, L, d] that `reduce` gets.
        reduce: of gradients and embeddings.
        chunk: steps at a time.

    Returns:
        For each input its scores [B, T, L].
    """
    steps = torch.arange(state.shape[1], device=state.device)

    def one_step(t: Tensor) -> list[Tensor]:
        here = gradient * (steps == t)[:, None]
        gradients = torch.autograd.grad(state, inputs, here, retain_graph=True)
        return [reduce(g, e) for g, e in zip(gradients, clean, strict=True)]

    return torch.func.vmap(one_step, out_dims=1, chunk_size=chunk)(steps)


# ------------------------------------------------------------------------------------------------------------ by hand
class Rows:
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


@dataclass
class Record:
    """One forward pass, for `Walk`: the tape of `modules(parts)` and what belongs to it."""

    parts: Parts
    batch: Batch
    tape: Tape
    gradient: Tensor  # [B, T, d] of each step's score with respect to the decoder's last state of that step
    source: Tensor  # [B, S, d] embeddings
    decoder: Tensor  # [B, T, d] embeddings

    def __post_init__(self) -> None:
        kinds = ("encoder", "decoder", "cross")
        found = [attention for kind in kinds for attention in self.parts.attentions(kind)]
        with torch.no_grad():
            self.weights = {a.core: attention_weights(self.tape, a, self.batch.attention_mask) for a in found}


def modules(parts: Parts) -> list[nn.Module]:
    """What a walk needs on its tape; the last one gives the decoder's last state."""
    found: list[nn.Module | None] = []
    for stack in (parts.encoder, parts.decoder):
        found.append(stack.embedding_norm)
        for sub in (sub for layer in stack.layers for sub in layer):
            if isinstance(sub.branch, Attention):
                found += [sub.branch.core, sub.branch.query, sub.branch.key, sub.branch.value]
            else:
                found += [sub.branch.inner, sub.branch.gate]
            found.append(sub.norm)
        found.append(stack.final_norm)
    return [module for module in found if module is not None]


class Walk:
    """The way back from the decoder's last state to the embeddings, for some sentences and steps of a record."""

    def __init__(self, record: Record, sentences: slice, steps: slice) -> None:
        self.record, self.sentences = record, sentences
        labels = record.batch.labels[sentences]
        explained = (labels != -100)[:, None, steps]  # [B, 1, K]
        token = torch.arange(labels.shape[1], device=labels.device)
        step, token = token[steps], token[: steps.stop, None]
        self.own, self.later = Rows((token == step) & explained), Rows((token <= step) & explained)
        mask = record.batch.attention_mask[sentences] != 0
        longest = int(mask.sum(-1).max())  # of these sentences: the batch may be padded further
        self.source = Rows(mask[:, :longest, None] & explained)

    @torch.no_grad()
    def scores(self, reduce: Reduce) -> tuple[Tensor, Tensor]:
        """Scores of the source embeddings [B, K, longest source] and of the decoder's [B, K, last step]."""
        parts, rows = self.record.parts, self.own
        gradient = rows.pick(self._of(self.record.gradient, rows))
        memory = gradient.new_zeros(len(self.source.at), parts.attentions("cross")[0].key.in_features)
        gradient = self._norm(gradient, parts.decoder.final_norm, rows)
        for sub in _downwards(parts.decoder):
            if rows is self.own and isinstance(sub.branch, Attention) and sub.branch.kind == "decoder":
                gradient, rows = self.later.from_grid(rows.to_grid(gradient)), self.later
            gradient = self._sublayer(gradient, sub, rows, memory)
        prefix = self._reduce(gradient, parts.decoder, rows, self.record.decoder, reduce)
        gradient, rows = self._norm(memory, parts.encoder.final_norm, self.source), self.source
        for sub in _downwards(parts.encoder):
            gradient = self._sublayer(gradient, sub, rows, memory)
        return self._reduce(gradient, parts.encoder, rows, self.record.source, reduce), prefix

    def _of(self, x: Tensor, rows: Rows) -> Tensor:
        return x[self.sentences, : rows.shape[1]].detach()

    def _reduce(self, gradient: Tensor, stack: Stack, rows: Rows, embedding: Tensor, reduce: Reduce) -> Tensor:
        gradient = self._norm(gradient, stack.embedding_norm, rows)
        found = reduce(gradient, rows.pick(self._of(embedding, rows)))
        return rows.to_grid(found[:, None])[..., 0].transpose(1, 2)

    def _norm(self, gradient: Tensor, norm: nn.Module | None, rows: Rows) -> Tensor:
        if norm is None:
            return gradient
        x = rows.pick(self._of(self.record.tape.input(norm), rows)).requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(norm(x), x, gradient)[0]

    def _sublayer(self, gradient: Tensor, sub: Sublayer, rows: Rows, memory: Tensor) -> Tensor:
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

    def _feed_forward(self, gradient: Tensor, ffn: FeedForward, rows: Rows, into: Tensor) -> None:
        gradient = gradient @ ffn.outer.weight
        x = self._of(self.record.tape.output(ffn.inner), rows).requires_grad_()
        with torch.enable_grad():
            active = ffn.activation(x)
            slope = torch.autograd.grad(active.sum(), x)[0]  # [B, L, n]
        if ffn.gate is not None:
            into.addmm_(gradient * rows.pick(active.detach()), ffn.gate.weight)
            slope = slope * self._of(self.record.tape.output(ffn.gate), rows)
        into.addmm_(gradient.mul_(rows.pick(slope)), ffn.inner.weight)

    def _attention(self, gradient: Tensor, attention: Attention, rows: Rows, into: Tensor, memory: Tensor) -> None:
        """Of O = W V, W = softmax(c Q K'): dV = W' dO, dW = dO V', dA = c W (dW - sum W dW), dQ = dA K, dK = dA' Q."""
        keys, keys_into = (self.source, memory) if attention.kind == "cross" else (rows, into)

        def heads(module: nn.Linear, of: Rows) -> Tensor:  # [B, L, H * D] -> [B, H, L, D]
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


def _downwards(stack: Stack) -> Iterator[Sublayer]:
    return (sub for layer in reversed(stack.layers) for sub in reversed(layer))
