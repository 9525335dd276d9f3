"""One recorded forward pass of a batch, checked against the assumptions of the LRP rules."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_nmt_interp.attribution.attention import attention_scores, attention_weights
from hf_nmt_interp.attribution.quantised import is_quantised
from hf_nmt_interp.attribution.tape import Tape, widened
from hf_nmt_interp.decoding.batch import Batch, run_model
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Attention, FeedForward, Parts, Stack, Sublayer
from hf_nmt_interp.models.kinds import KINDS

# how far operations may differ from what is recorded, relative to the largest unit of a token
_ROUNDING = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 0.1}


class Recording:
    """Inputs and outputs of every operation of a model in one forward pass.

    A model in half precision runs unchanged; values are read here in float32.

    Args:
        model: a Transformer.
        parts: of the model.
        batch: of B sentence pairs.
        title: name of the method, for messages.
    """

    @torch.no_grad()  # not inference mode: what a model keeps of a forward pass must stay fit for training
    def __init__(self, model: Any, parts: Parts, batch: Batch, title: str) -> None:
        self.model, self.parts, self.batch, self.title = model, parts, batch, title
        stacks = parts.encoder, parts.decoder
        ends = [module for stack in stacks for sub in stack.sublayers for module in sub.branch.ends]
        read = [module for kind in KINDS for a in parts.attentions(kind) for module in (a.core, a.key)]
        places = [module for stack in stacks for module in stack.positions]
        with Tape({*parts.operations, *ends, *read, *places}, wide=True) as self.tape:
            self.logits = widened(run_model(model, batch.inputs()).logits)
        self.weights = {a.core: attention_weights(self.tape, a, batch.attention_mask) for a in parts.all_attentions}
        self._scores: dict[nn.Module, Tensor] = {}
        self._signs: dict[int, Tensor] = {}
        self._checked: list[tuple[nn.Module, Tensor]] = []

    def scores(self, attention: Attention) -> Tensor:
        """[B, H, P, S] before the softmax, -inf where a key is hidden; computed when a rule first asks for them."""
        if attention.core not in self._scores:  # by several threads at once, perhaps: they get the same
            self._scores[attention.core] = attention_scores(self.tape, attention, self.batch.attention_mask)
        return self._scores[attention.core]

    def input(self, module: nn.Module) -> Tensor:
        """Input [B, L, n] of a module."""
        return self.tape.input(module)

    def output(self, module: Any) -> Tensor:
        """Output [B, L, m] of a module; further outputs of calibrated models are ignored."""
        found = self.tape.output(module)
        return found[..., : module.out_features] if isinstance(module, nn.Linear) else found

    def linear_input(self, module: Any, where: Any = ...) -> Tensor:
        """[B, L, n] (or a part of it) that the weights of a linear layer were multiplied with: behind its gate."""
        gate = getattr(module, "gate", None)  # of heads
        return self.input(module)[where] if gate is None else gate(self.input(module)[where])

    @property
    def memory(self) -> Tensor:
        """Output [B, S, d] of the encoder."""
        return self.input(self.parts.attentions("cross")[0].key)

    @property
    def states(self) -> Tensor:
        """Output [B, T, d] of the decoder."""
        head = self.parts.output_head
        return self.input(head.dense if head else self.parts.projection) / self.parts.output_scale

    def projection(self, chosen: Tensor, where: Any = ...) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs and weights [..., n] and biases [...] of the logits of the chosen items [B, T], or a part of them."""
        projection: Any = self.parts.projection
        x, chosen = self.input(projection)[where], chosen[where]
        bias = x.new_zeros(chosen.shape) if projection.bias is None else projection.bias[chosen]
        if self.parts.logits_bias is not None:
            bias = bias + self.parts.logits_bias.flatten()[chosen]
        return x, widened(projection.weight[chosen]), widened(bias)

    @torch.no_grad()
    def verify(self, chosen: Tensor) -> None:
        """Raise unless everything that was recorded follows from what comes before it by the known operations.

        So nothing that a model does in between is silently ignored. Compared up to rounding, once per batch.

        Args:
            chosen: [B, T] items whose logits are explained.
        """
        for module in self.parts.operations[:-1]:
            if is_quantised(module):  # its inputs are rounded too
                continue
            (self._verify_linear if isinstance(module, nn.Linear) else self._verify_norm)(module)
        self._verify_logits(chosen)
        self._verify_stack(self.parts.decoder, self.states, self.batch.decoder_input_ids)
        self._verify_stack(self.parts.encoder, self.memory, self.batch.input_ids)
        modules, wrong = zip(*self._checked, strict=True)
        self._checked.clear()
        for module, is_wrong in zip(modules, torch.stack(wrong).tolist(), strict=True):  # waits for a GPU once
            if is_wrong:
                name = next(name for name, known in self.model.named_modules() if known is module)
                problem = f"at {name} it does something that {self.title} has no rule for"
                raise InputError("model", None, problem, "use another method, or explain the model without it")

    def _check(self, module: nn.Module, expected: Tensor, recorded: Tensor, size: Tensor | None = None) -> None:
        """Rounding is relative to the largest unit of a token in `size`, which is what was recorded if not given."""
        largest = (recorded if size is None else size).abs().amax(-1)
        wrong = (expected - recorded).abs().amax(-1) > _ROUNDING[self.model.dtype] * largest
        self._checked.append((module, wrong.any()))

    def _verify_norm(self, norm: Any) -> None:
        self._check(norm, normed(norm, self.input(norm)), self.output(norm))

    def _verify_linear(self, module: Any) -> None:
        """W x + b [B, L, m] by sums with random signs u: u (W x + b) = (u W) x + u b costs far less."""
        x, given = self.linear_input(module), self.output(module)
        if (m := len(module.weight)) not in self._signs:
            self._signs[m] = (torch.randint(2, (m, 1), generator=torch.Generator().manual_seed(0)) * 2 - 1).to(x)
        u = self._signs[m]  # [m, 1]
        expected = x @ (widened(module.weight).T @ u) + (0 if module.bias is None else widened(module.bias) @ u)
        self._check(module, expected, given @ u, given)

    def _verify_logits(self, chosen: Tensor) -> None:
        if is_quantised(self.parts.projection):
            return
        x, weight, bias = self.projection(chosen)
        terms = torch.cat([weight * x, bias[..., None]], -1)  # [B, T, n + 1]
        given = self.logits.gather(-1, chosen[..., None])
        size = terms.abs().sum(-1, keepdim=True)
        self._check(self.parts.projection, terms.sum(-1, keepdim=True), given, size)
        if head := self.parts.output_head:
            self._check(head.norm, self.output(head.norm), self.input(self.parts.projection))
            self._check(head.dense, head.activation(self.output(head.dense)), self.input(head.norm))

    def _verify_stack(self, stack: Stack, output: Tensor, ids: Tensor) -> None:
        """`output` [B, L, d] is what was read of the stack."""
        if stack.final_norm is not None:
            self._check(stack.final_norm, self.output(stack.final_norm), output)
            output = self.input(stack.final_norm)
        for sub in reversed(stack.sublayers):
            output = self._verify_sublayer(sub, output)
        if stack.embedding_norm is not None:
            self._check(stack.embedding_norm, self.output(stack.embedding_norm), output)
            output = self.input(stack.embedding_norm)
        embedded: Tensor = widened(stack.embedding(ids)) * stack.scale
        for module in stack.positions:  # [L, d], or for each sentence
            embedded = embedded + self.tape.output(module)
        self._check(stack.embedding, embedded, output)

    def _verify_sublayer(self, sub: Sublayer, output: Tensor) -> Tensor:
        """The stream [B, L, d] that entered a sublayer whose output was read as given."""
        first, last = sub.branch.ends
        stream = self.input(sub.norm if sub.norm_first else first)
        self._check(sub.norm, self.output(sub.norm), self.input(first) if sub.norm_first else output)
        self._check(last, stream + self.output(last), output if sub.norm_first else self.input(sub.norm))
        if isinstance(sub.branch, FeedForward):
            self._verify_feed_forward(sub.branch)
        elif sub.branch.heads:
            self._verify_attention(sub.branch)
        return stream

    def _verify_feed_forward(self, ffn: FeedForward) -> None:
        hidden = ffn.activation(self.output(ffn.inner))
        if ffn.gate is not None:
            self._check(ffn.gate, self.input(ffn.inner), self.input(ffn.gate))
            hidden = hidden * self.output(ffn.gate)
        self._check(ffn.inner, hidden, self.input(ffn.outer))

    def _verify_attention(self, attention: Attention) -> None:
        read = self.memory if attention.kind == "cross" else self.input(attention.query)
        for module in (attention.key, attention.value):
            self._check(module, read, self.input(module))
        values = self.output(attention.value).unflatten(-1, (-1, attention.head_size)).transpose(1, 2)  # [B, H, S, D]
        summed = (self.weights[attention.core] @ values).transpose(1, 2).flatten(-2)  # [B, T, H * D]
        self._check(attention.value, summed, self.input(attention.output))


def normed(norm: Any, x: Tensor) -> Tensor:
    """What a layer norm or RMS norm makes of x [..., n], in the type of x."""
    weight = norm.weight.to(x)
    if isinstance(norm, nn.LayerNorm):
        return F.layer_norm(x, norm.normalized_shape, weight, None if norm.bias is None else norm.bias.to(x), norm.eps)
    return F.rms_norm(x, x.shape[-1:], weight, norm.variance_epsilon)
