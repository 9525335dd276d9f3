"""Layer-wise relevance propagation through a whole encoder-decoder (voita2021, section 2)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hf_nmt_interp.attribution import engine
from hf_nmt_interp.attribution.attention import attention_weights
from hf_nmt_interp.attribution.base import (
    AttributionMethod,
    Batch,
    Scores,
    evaluating,
    label_log_probs,
    make_batch,
    run_model,
)
from hf_nmt_interp.attribution.rules import make_rule
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Attention, FeedForward, Parts, Stack, Sublayer, parts


class LRP(AttributionMethod):
    """Relevance 1 of one logit a step, carried back to the input tokens; every step's total stays 1.

    One forward pass is recorded for the whole batch; the walk back carries all steps of a sentence at once.

    Args:
        model: any supported translator.
        rule: "alpha_beta" (voita2021, eq. 5) or "epsilon" (voita2019, appendix A).
        alpha: weight of positive messages.
        beta: weight of negative messages.
        epsilon: stabiliser of the epsilon rule.
        logit: which logit is explained, "top1" (the model's choice) or "label".
        attention: "full", or "values" to treat attention weights as constants.
        max_memory: bytes of relevance held at a time; longer work is cut into blocks of steps.
    """

    name = "lrp"

    def __init__(
        self,
        model: PreTrainedModel,
        rule: str = "alpha_beta",
        alpha: float = 1.0,
        beta: float = 0.0,
        epsilon: float = 1e-6,
        logit: str = "top1",
        attention: str = "full",
        max_memory: int = 2**30,
    ) -> None:
        super().__init__(model)
        if not self.fits(model):
            raise InputError(
                f"model: LRP has no rules for {type(model).__name__}, only for Transformers; use saliency or attention"
            )
        for argument, value, known in (
            ("logit", logit, ("top1", "label")),
            ("attention", attention, ("full", "values")),
        ):
            if value not in known:
                raise InputError(f"{argument}: {value!r} is not one of {', '.join(known)}")
        if model.dtype not in (torch.float32, torch.float64):
            raise InputError(f"model: LRP needs float32 or float64, not {model.dtype}; convert it with model.float()")
        if max_memory <= 0:
            raise InputError(f"max_memory: {max_memory} bytes must be more than 0")
        self.names = {module: name for name, module in model.named_modules()}
        for module in _operations(self.parts):
            has_rule = isinstance(module, (nn.Linear, nn.LayerNorm)) or hasattr(module, "variance_epsilon")
            if not (has_rule and module.weight.is_floating_point()):  # else the numbers of quantised weights
                raise InputError(
                    f"model: LRP has no rule for {type(module).__name__} ({self.names[module]}), only for Linear, "
                    "LayerNorm and T5's RMS norm; merge adapters into the weights, load without quantisation"
                )
        self.rule = make_rule(rule, alpha=alpha, beta=beta, epsilon=epsilon)
        self.logit, self.values_only, self.max_memory = logit, attention == "values", max_memory

    @classmethod
    def fits(cls, model: PreTrainedModel) -> bool:
        """Whether there are rules for the model: LSTMs and convolutions have none."""
        return not parts(model).weighted_sums

    def explain(self, batch: Batch) -> Scores:
        """Relevance of every token for every step of a batch."""
        logits, walks = self._walks(batch)
        source = logits.new_zeros(*batch.labels.shape, batch.input_ids.shape[1])
        decoder = logits.new_zeros(*batch.labels.shape, batch.labels.shape[1])
        gap = logits.new_zeros(len(logits))
        for b, blocks in enumerate(walks):
            for steps, walk in blocks:
                walk.run()
                source[b, steps, : walk.S] = walk.source
                decoder[b, steps, : walk.T] = walk.prefix
            total = source[b, : walk.T].sum(-1) + decoder[b, : walk.T].sum(-1)
            gap[b] = (1 - total).abs().max()
        self._check_finite(gap)
        return Scores.from_inputs(source, decoder, label_log_probs(logits, batch.labels), conservation_gap=gap)

    def head_relevance(self, batches: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Mean over all steps of a data set of each head's share of its layer's relevance (voita2019, section 4).

        Args:
            batches: of input_ids, labels and, where padded, attention_mask.

        Returns:
            {"encoder": [L, H], "decoder": [L, H], "cross": [L, H]}; rows sum to 1, but for steps at which a layer's
            heads have no relevance: they count as 0, and so do pruned heads. A closed gate's head still gets its even
            part of the output projection's bias.
        """
        total: dict[str, Tensor] = {}
        count = 0
        for inputs in batches:
            for kind, sums in self.head_relevance_sums(**inputs).items():
                total[kind] = total.get(kind, 0) + sums.sum(0)
            count += int(inputs["labels"].ne(-100).sum())
        if not count:
            raise InputError("batches: no batch was given; an iterator can be used up only once")
        return {kind: rows / count for kind, rows in total.items()}

    def head_relevance_sums(
        self, input_ids: Tensor, labels: Tensor, attention_mask: Tensor | None = None, **more: Tensor
    ) -> dict[str, Tensor]:
        """Sum over the steps of each sentence of each head's share of its layer's relevance: {kind: [B, L, H]}.

        Args:
            input_ids: [B, S].
            labels: [B, T], -100 is padding.
            attention_mask: [B, S].
            more: `decoder_input_ids` [B, T].
        """
        batch = make_batch(self.model, input_ids, labels, attention_mask, **more)
        kinds = {kind: self.parts.attentions(kind) for kind in ("encoder", "decoder", "cross")}
        total = {
            kind: torch.zeros(
                len(labels), len(layers), layers[0].all_heads, dtype=torch.float64, device=self.model.device
            )
            for kind, layers in kinds.items()
        }
        with evaluating(self.model):
            for b, blocks in enumerate(self._walks(batch)[1]):
                for _, walk in blocks:
                    walk.run()
                    for kind, layers in kinds.items():
                        for row, attention in zip(total[kind][b], layers, strict=True):
                            if attention.heads:
                                heads = walk.heads[attention.core].double()  # [K, H]
                                given = heads.sum(-1, keepdim=True)
                                row[attention.heads] += (heads / given.masked_fill(given == 0, 1)).sum(0)
        self._check_finite(torch.cat([rows.flatten() for rows in total.values()]))
        return total

    def _check_finite(self, values: Tensor) -> None:
        if not torch.isfinite(values).all():
            raise InputError(
                f"rule: {self.rule} gave relevance too large for {self.model.dtype}; use rule='alpha_beta', a larger "
                "epsilon or a float64 model"
            )

    @torch.no_grad()  # not inference mode: what a model keeps of a forward pass must stay fit for training
    def _walks(self, batch: Batch):
        """Logits, and for each sentence its walks: (slice of steps, walk) for each block of steps."""
        attentions = [a for kind in ("encoder", "decoder", "cross") for a in self.parts.attentions(kind)]
        operations = _operations(self.parts)
        recorded = {m for a in attentions for m in (a.core, a.query, a.key, a.output)}.union(operations)
        recorded.update(self.parts.encoder.positions, self.parts.decoder.positions)
        with Tape(recorded) as tape:
            logits = run_model(self.model, batch.inputs()).logits
        if not torch.isfinite(logits).all():
            raise InputError("model: its logits are not finite; check the weights and the input")
        weights = {a.core: attention_weights(tape, a, batch.attention_mask) for a in attentions if a.heads}
        chosen = logits.argmax(-1) if self.logit == "top1" else batch.labels

        signs: dict[nn.Module, Any] = {}  # of the walks' checks
        widest = max(m.out_features for m in operations[1:] if isinstance(m, nn.Linear))

        def blocks(b: int, S: int, T: int):
            # about six tensors [tokens, steps, units] are alive at the widest point
            size = max(1, self.max_memory // (6 * max(S, T) * widest * logits.element_size()))
            for start in range(0, T, size):
                steps = slice(start, min(start + size, T))
                ids = batch.input_ids[b, :S], batch.decoder_input_ids[b, :T]
                yield steps, _Walk(self, tape, weights, signs, b, ids, steps, logits[b, steps], chosen[b, steps])

        lengths = zip(batch.source_lengths, batch.target_lengths, strict=True)
        return logits, [blocks(b, S, T) for b, (S, T) in enumerate(lengths)]


def _operations(parts: Parts) -> list[Any]:
    """Every linear layer and norm that relevance goes through, the output projection first."""
    found: list[nn.Module] = [
        parts.projection,
        *([parts.output_head.dense, parts.output_head.norm] if parts.output_head else []),
    ]
    for stack in (parts.encoder, parts.decoder):
        found += [norm for norm in (stack.embedding_norm, stack.final_norm) if norm is not None]
        for sub in (sub for layer in stack.layers for sub in layer):
            found.append(sub.norm)
            branch = sub.branch
            if isinstance(branch, FeedForward):
                found += [m for m in (branch.inner, branch.gate, branch.outer) if m is not None]
            elif branch.heads:
                found += [branch.query, branch.key, branch.value, branch.output]
    return found


class _Walk:
    """The way back for some steps of one sentence; relevance tensors are [tokens, steps, units]."""

    def __init__(
        self,
        lrp: LRP,
        tape: Tape,
        weights: dict[nn.Module, Tensor],
        signs: dict[nn.Module, Any],
        b: int,
        ids: tuple[Tensor, Tensor],
        steps: slice,
        logits: Tensor,
        chosen: Tensor,
    ) -> None:
        self.parts, self.rule, self.values_only = lrp.parts, lrp.rule, lrp.values_only
        self.names, self.tape, self.weights, self.signs = lrp.names, tape, weights, signs
        self.b, self.start, self.K = b, steps.start, steps.stop - steps.start
        self.ids, (self.S, self.T) = ids, map(len, ids)
        self.logits, self.chosen = logits, chosen  # [K, V], [K]
        self.heads: dict[nn.Module, Tensor] = {}

    # which steps a token can have relevance for
    def _all(self, token: int) -> tuple[int, int]:
        return 0, self.K

    def _own(self, token: int) -> tuple[int, int]:
        return max(token - self.start, 0), min(token - self.start + 1, self.K)

    def _later(self, token: int) -> tuple[int, int]:
        return max(token - self.start, 0), self.K

    @torch.inference_mode()
    def run(self) -> None:
        """Fill `source` [K, S], `prefix` [K, T] (the decoder's inputs) and `heads` [K, H] of each attention core."""
        states = self._in(self.parts.output_head.dense if self.parts.output_head else self.parts.projection, self.T)
        self.encoded = self._in(self.parts.attentions("cross")[0].key, self.S)  # what the encoder gave, [S, d]
        relevance = self._from_logits()
        self.memory = relevance.new_zeros(self.S, self.K, self.encoded.shape[-1])
        # above the last self-attention a step has relevance at its own position only
        output = states / self.parts.output_scale
        self.prefix = self._stack(relevance, self.parts.decoder, output, self._own, self.ids[1])
        self.source = self._stack(self.memory, self.parts.encoder, self.encoded, self._all, self.ids[0])

    def _stack(self, relevance: Tensor, stack: Stack, output: Tensor, steps: engine.Steps, ids: Tensor) -> Tensor:
        """Relevance of a stack's tokens [K, L]; `output` [L, d] is what the stack gave."""
        length = len(output)
        if stack.final_norm is not None:
            self._check(stack.final_norm, self._out(stack.final_norm, length), output)
            relevance = self._norm(relevance, stack.final_norm, length, steps)
            output = self._in(stack.final_norm, length)
        for sub in (sub for layer in reversed(stack.layers) for sub in reversed(layer)):
            relevance, output = self._sublayer(relevance, sub, output, steps)
            if isinstance(sub.branch, Attention) and sub.branch.kind == "decoder":
                steps = self._later
        if stack.embedding_norm is not None:
            self._check(stack.embedding_norm, self._out(stack.embedding_norm, length), output)
            relevance = self._norm(relevance, stack.embedding_norm, length, steps)
            output = self._in(stack.embedding_norm, length)
        embedded: Tensor = stack.embedding(ids) * stack.scale
        for module in stack.positions:
            embedded = embedded + self._position(module, length)
        self._check(stack.embedding, embedded, output)
        return relevance.sum(-1).T

    def _position(self, module: nn.Module, length: int) -> Tensor:
        """What a module of positions or token types gave, [L, d]: for each sentence or for all of them."""
        found = self.tape.output(module)
        return (found[self.b % len(found)] if found.ndim == 3 else found)[:length]

    def _sublayer(self, relevance: Tensor, sub: Sublayer, output: Tensor, steps: engine.Steps):
        """Norm, addition and branch, in the order of the family: relevance of the stream, and the stream [L, d]."""
        length = len(output)
        first, last = sub.branch.ends
        stream, added = self._in(sub.norm if sub.norm_first else first, length), self._out(last, length)
        self._check(sub.norm, self._out(sub.norm, length), self._in(first, length) if sub.norm_first else output)
        if not sub.norm_first:
            relevance, output = self._norm(relevance, sub.norm, length, steps), self._in(sub.norm, length)
        self._check(last, stream + added, output)
        came = relevance
        relevance, inside = engine.through_addition(self.rule, came, stream, added)
        if isinstance(sub.branch, Attention) and not sub.branch.heads:  # a constant passes nothing on
            return engine.rescale(relevance, came), stream
        if isinstance(sub.branch, FeedForward):
            inside = self._feed_forward(inside, sub.branch, length, steps)
        else:
            inside = self._attention(inside, sub.branch, length, steps)
            if sub.branch.kind == "decoder":
                steps = self._later
        if sub.norm_first:
            inside = self._norm(inside, sub.norm, length, steps)
        return relevance + inside, stream

    def _check(self, module: nn.Module, expected: Tensor, recorded: Tensor, size: Tensor | None = None) -> None:
        """Nothing is skipped in silence: what was recorded is what the operations with a rule give, up to rounding.

        Rounding is relative to the largest unit of a token in `size`, which is what was recorded where not given.
        """
        largest = (recorded if size is None else size).abs().amax(-1)
        if ((expected - recorded).abs().amax(-1) > 1e-3 * largest).any():
            raise InputError(f"model: at {self.names[module]} it does something that LRP has no rule for")

    def _in(self, module: nn.Module, length: int) -> Tensor:
        return self.tape.input(module)[self.b, :length]

    def _out(self, module: nn.Module, length: int) -> Tensor:
        return self.tape.output(module)[self.b, :length]

    def _from_logits(self) -> Tensor:
        projection: Any = self.parts.projection
        own = slice(self.start, self.start + self.K)
        x = self._in(projection, self.T)[own]
        bias = x.new_zeros(self.K) if projection.bias is None else projection.bias[self.chosen]
        if self.parts.logits_bias is not None:
            bias = bias + self.parts.logits_bias.flatten()[self.chosen]
        weight = projection.weight[self.chosen]  # [K, n]
        terms = torch.cat([weight * x, bias[:, None]], -1)  # [K, n + 1]
        given = self.logits.gather(-1, self.chosen[:, None])  # [K, 1]
        self._check(projection, terms.sum(-1, keepdim=True), given, terms.abs().sum(-1, keepdim=True))
        here = engine.through_projection(self.rule, x, weight, bias)  # [K, n]
        relevance = x.new_zeros(self.T, self.K, x.shape[-1])
        at = torch.arange(self.K, device=x.device)
        relevance[at + self.start, at] = here
        head = self.parts.output_head
        if head is None:
            return relevance
        self._check(head.norm, self._out(head.norm, self.T), self._in(projection, self.T))
        self._check(head.dense, head.activation(self._out(head.dense, self.T)), self._in(head.norm, self.T))
        relevance = self._norm(relevance, head.norm, self.T, self._own)  # activations pass it unchanged
        return self._linear(relevance, head.dense, self.T, self._own)

    def _linear(self, relevance: Tensor, module: Any, length: int, steps: engine.Steps) -> Tensor:
        x = self._in(module, length)
        if (gate := getattr(module, "gate", None)) is not None:  # of heads; relevance passes it unchanged
            x = gate(x)
        self._check_linear(
            module, x, self._out(module, length)[..., : len(module.weight)]
        )  # calibrated ones give more
        return engine.through_linear(self.rule, relevance, x, module.weight, module.bias, steps)

    def _check_linear(self, module: Any, x: Tensor, given: Tensor) -> None:
        """`_check` of W x + b [L, m] by sums with random signs u: u (W x + b) = (u W) x + u b costs far less."""
        if module not in self.signs:
            generator = torch.Generator().manual_seed(0)
            u = (torch.randint(2, (len(module.weight), 1), generator=generator) * 2 - 1).to(x)  # [m, 1]
            self.signs[module] = u, module.weight.T @ u, 0 if module.bias is None else module.bias @ u
        u, weight, bias = self.signs[module]
        self._check(module, x @ weight + bias, given @ u, given)

    def _norm(self, relevance: Tensor, norm: Any, length: int, steps: engine.Steps) -> Tensor:
        x = self._in(norm, length)
        if isinstance(norm, nn.LayerNorm):
            expected = F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        else:
            expected = F.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)
        self._check(norm, expected, self._out(norm, length))
        return engine.through_norm(self.rule, relevance, x, norm, steps)

    def _feed_forward(self, relevance: Tensor, ffn: FeedForward, length: int, steps: engine.Steps) -> Tensor:
        hidden = ffn.activation(self._out(ffn.inner, length))
        hidden = hidden if ffn.gate is None else hidden * self._out(ffn.gate, length)
        self._check(ffn.inner, hidden, self._in(ffn.outer, length))
        relevance = self._linear(relevance, ffn.outer, length, steps)  # activations pass it unchanged
        if ffn.gate is None:
            return self._linear(relevance, ffn.inner, length, steps)
        self._check(ffn.gate, self._in(ffn.inner, length), self._in(ffn.gate, length))
        half = relevance / 2  # a product of two branches: half to each factor
        return self._linear(half, ffn.inner, length, steps) + self._linear(half, ffn.gate, length, steps)

    def _attention(self, relevance: Tensor, attention: Attention, length: int, steps: engine.Steps) -> Tensor:
        """Relevance of the stream; that of the encoder's output is added to `memory`."""
        keys = self.T if attention.kind == "decoder" else self.S
        read = self.encoded if attention.kind == "cross" else self._in(attention.query, length)
        for module in (attention.key, attention.value):
            self._check(module, read, self._in(module, keys))

        def split(x: Tensor) -> Tensor:  # [L, ..., H * D] -> [H, L, ..., D]
            return x.unflatten(-1, (-1, attention.head_size)).movedim(-2, 0)

        def merge(x: Tensor) -> Tensor:  # [H, L, ..., D] -> [L, ..., H * D]
            return x.movedim(0, -2).flatten(-2)

        relevance = split(self._linear(relevance, attention.output, length, steps))
        self.heads[attention.core] = relevance.sum((1, 3)).T  # [K, H]
        modules = ((attention.query, length), (attention.key, keys), (attention.value, keys))
        q, k, v = (split(self._out(module, n)) for module, n in modules)
        w = self.weights[attention.core][self.b, :, :length, :keys]
        self._check(attention.value, merge(w @ v), self._in(attention.output, length))
        values_only = self.values_only or attention.calibrated  # fused weights are constants
        to_q, to_k, to_v = map(
            merge, engine.through_attention(self.rule, relevance, q, k, v, w, attention.scale, steps, values_only)
        )
        key_steps = self._later if attention.kind == "decoder" else self._all
        to_stream = self._linear(to_q, attention.query, length, steps)
        to_keys = self._linear(to_k, attention.key, keys, key_steps)
        to_keys += self._linear(to_v, attention.value, keys, key_steps)
        if attention.kind == "cross":
            self.memory += to_keys
            return to_stream
        return to_stream + to_keys
