"""Gradients of every step's score with respect to embeddings or encoder states, all steps from one forward pass.

`step_gradients` computes them in one of two ways: explicitly (walk.py), by the chain rule along the parts of a
translator, which skips causal zeros and padding; or by autograd for all steps at once, for models with custom parts.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
import torch.nn.modules.module as everywhere
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.quantised import check_gradients
from hf_nmt_interp.attribution.scores import Score, Scoring
from hf_nmt_interp.attribution.tape import REGISTERING, Tape
from hf_nmt_interp.attribution.threads import interleave, shares, side_by_side, thread_count, workers
from hf_nmt_interp.attribution.walk import Record, Reduce, carry_back
from hf_nmt_interp.decoding.batch import Batch, first_choices, label_log_probs, run_model
from hf_nmt_interp.decoding.precision import NarrowProducts
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Parts, Stack

Change = Callable[[Tensor], Tensor]
_NONE: Mapping[str, Tensor] = MappingProxyType({})
_CACHED_ROWS = 2048  # gradients propagated at a time: enough for fast products, few enough for caches


def step_gradients(
    model: PreTrainedModel,
    parts: Parts,
    batch: Batch,
    leaves: Sequence[str],
    score: Score,
    reduce: Reduce,
    *,
    offsets: Mapping[str, Tensor] = _NONE,
    values: Mapping[str, Tensor] = _NONE,
    rows: int = _CACHED_ROWS,
    products: torch.dtype | None = None,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Gradients of every step's score with respect to every vector of the leaves, each reduced to a number.

    Args:
        model: any supported translator, in evaluation mode.
        parts: parts of the model.
        batch: a batch of B sentence pairs, usable by autograd (see `Batch.take`).
        leaves: some of "source" and "decoder" (embeddings, scaled, before positions) and "memory" (encoder states).
        score: the score to differentiate.
        reduce: function from the gradient and the vector to a number.
        offsets: [B, L, d] added to a leaf; `reduce` still gets the clean vectors.
        values: [B, L, d] vectors that `reduce` gets instead of these.
        rows: gradients (of one vector for one step) in memory at a time.
        products: dtype in which float32 weights are multiplied; None for their own.

    Returns:
        For each leaf its numbers [B, T, L], 0 at padding; log-probabilities [B, T] of the labels; whether they are the
        model's first choices [B, T].
    """
    if any(weight.is_inference() for weight in model.parameters()):
        remedy = "load the model outside of torch.inference_mode()"
        raise InputError("model", None, "it was created in inference mode and has no gradients", remedy)
    check_gradients(model)
    by_hand = is_plain(model)  # before other threads add hooks to it
    with workers(model.device):
        budget = max(1, rows // thread_count())

        def some(share: slice) -> tuple[list[Tensor], Tensor, Tensor]:
            moved, own = ({name: x[share] for name, x in given.items()} for given in (offsets, values))
            return _gradients(
                model, parts, batch.take(share), leaves, score, reduce, moved, own, budget, by_hand, products
            )

        pieces = shares(len(batch.labels)) if len(batch.labels) > 1 else [slice(None)]
        found = side_by_side(some, pieces)
    numbers, log_probs, chosen = zip(*found, strict=True)
    together = [interleave(tensors) for tensors in (*zip(*numbers, strict=True), log_probs, chosen)]
    return together[:-2], together[-2], together[-1]


def _gradients(
    model: PreTrainedModel,
    parts: Parts,
    batch: Batch,
    leaves: Sequence[str],
    score: Score,
    reduce: Reduce,
    offsets: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    rows: int,
    by_hand: bool,
    products: torch.dtype | None,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """`step_gradients` of a batch that one thread runs forward."""
    clean: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}
    by_hand = by_hand and parts.has_layers
    scoring = score.scoring(batch)

    def leaf(name: str) -> Change:
        def change(x: Tensor) -> Tensor:
            clean[name] = values.get(name, x.detach())
            inputs[name] = (x.detach() + offsets.get(name, 0)).clone().requires_grad_()
            return inputs[name]

        return change

    with ExitStack() as context:
        context.enter_context(torch.enable_grad())
        if products is not None:
            context.enter_context(NarrowProducts(products))
        if not by_hand:
            context.enter_context(SingleOperations())
        for name in leaves:
            context.enter_context(_LEAVES[name](parts, leaf(name)))
        cores = [attention.core for attention in parts.all_attentions]
        tape = context.enter_context(Tape([*parts.operations[:-1], *cores] if by_hand else [parts.projection]))
        explained, log_probs, chosen = _step_scores(run_model(model, batch.inputs()).logits, batch, scoring)
        state = tape.output(parts.decoder.operations[-1]) if by_hand else tape.input(parts.projection)
        (gradient,) = torch.autograd.grad(explained.sum(), state, retain_graph=not by_hand)
    if by_hand:
        found = carry_back(Record(parts, batch, tape, gradient, clean, products), reduce, min(rows, _CACHED_ROWS))
    else:
        steps = max(1, rows // sum(x.shape[0] * x.shape[1] for x in inputs.values())) if parts.cross else 0
        found = _by_autograd(state, gradient, inputs, clean, reduce, steps)
    real = batch.attention_mask[:, None] != 0
    return [found[name] * (1 if name == "decoder" else real) for name in leaves], log_probs, chosen


def _step_scores(logits: Tensor, batch: Batch, scoring: Scoring) -> tuple[Tensor, Tensor, Tensor]:
    """The score to differentiate, log-probabilities and first choices [B, T]; the large logits are not kept."""
    with torch.no_grad():
        log_probs, chosen = label_log_probs(logits, batch.labels), first_choices(logits, batch)
    return scoring(logits).masked_fill(batch.labels == -100, 0), log_probs, chosen


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
    """Context in which the output [B, S, d] of an encoder is changed, in forward passes of the calling thread."""
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
    """Whether a model computes what its family computes: no custom modules, hooks or attention functions.

    Classes that do not change the family's outputs say so in their own body: `same_outputs = True`.
    """
    if everywhere._global_forward_hooks or everywhere._global_forward_pre_hooks:
        return False
    own = all(
        (type(module).__module__.startswith(("torch.nn.", "transformers.")) or vars(type(module)).get("same_outputs"))
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
        for module in model.modules()
    )
    configs = [model.config, *(getattr(model.config, name, None) for name in ("encoder", "decoder"))]
    used = {getattr(config, "_attn_implementation", None) for config in configs}
    return own and used <= {None, "eager", "sdpa", "flash_attention_2", "flash_attention_3"}


# -------------------------------------------------------------------------------------------------------- by autograd
class SingleOperations(TorchFunctionMode):
    """Context that runs attention and LSTMs as single operations: fused backward kernels cannot be batched."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Called for every torch function in this thread."""
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
    """Numbers [B, T, L] of each leaf, by chunks of steps; chunk 0 is for models without a batched backward pass.

    The score of a step depends on its own state: `gradient` [B, T, n] is that of all scores by `state` [B, T, n].
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
