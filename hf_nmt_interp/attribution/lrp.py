"""Layer-wise relevance propagation through a whole encoder-decoder (voita2021, section 2).

Definitions: docs/methods.md, LRP.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hf_nmt_interp.attribution import engine
from hf_nmt_interp.attribution.base import Scores
from hf_nmt_interp.attribution.layered import LayeredMethod
from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.attribution.parsing import parse_named
from hf_nmt_interp.attribution.recording import Recording, normed
from hf_nmt_interp.attribution.rules import RULES, make_rule, rule_settings
from hf_nmt_interp.attribution.tape import widened
from hf_nmt_interp.attribution.threads import Found, interleave, shares, side_by_side, thread_count, workers
from hf_nmt_interp.decoding.batch import Batch, evaluating, label_log_probs, make_batch
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models.families import Attention, FeedForward, Stack, Sublayer
from hf_nmt_interp.models.kinds import KINDS

_CHOICES = {"logit": ("top1", "label"), "attention": ("full", "values"), "norm": ("jacobian", "scale")}


class LRP(LayeredMethod):
    """Starts each step with relevance 1 on one logit and propagates it back to the input tokens.

    Each thread records one forward pass of its sentences; the backward walk propagates all steps of a sentence. The
    total of source, prefix and start stays 1, except for rules that let biases keep their part. With a contrast,
    relevance starts on the difference of the two logits.

    Args:
        model: any supported translator.
        rule: name of a rule, "alpha_beta" (voita2021, eq. 5), "epsilon", "ratio" (voita2019, appendix A.2), "attnlrp"
            (Achtibat et al. 2024), "cp_lrp" (Ali et al. 2022) or "gamma", with settings as in "epsilon:epsilon=1e-3"
            unless they are given by name. The last three let biases keep their part, so totals are not 1.
        logit: logit to explain, "top1" (the model's choice) or "label".
        attention: "full", or "values" to treat attention weights as constants.
        norm: "jacobian", or "scale" to treat norms as a constant scale, which relevance passes unchanged. Keep
            "jacobian" for the last three rules, which take the Jacobian with the norm's scale as a constant.
        max_memory: approximate limit in bytes, see `Memory`; larger work is split into sentences and blocks of steps.
        settings: settings of the rule, e.g. `alpha` and `beta`.
    """

    name, title = "lrp", "LRP"
    shares_total = True
    contrasts = True
    word_settings = {"logit": "label"}  # noqa: RUF012 - the words of the target, not the model's choice

    def __init__(
        self,
        model: PreTrainedModel,
        rule: str = "alpha_beta",
        logit: str = "top1",
        attention: str = "full",
        norm: str = "jacobian",
        max_memory: int = 2**30,
        **settings: Any,
    ) -> None:
        super().__init__(model)
        for argument, value in (("logit", logit), ("attention", attention), ("norm", norm)):
            check_choice(argument, value, _CHOICES[argument])
        name, own = parse_named(rule, "rule", RULES, rule_settings)
        self.rule = make_rule(name, **own | settings)
        self.logit = logit
        self.memory: Memory = Memory(model, self.parts, max_memory)
        self.values_only, self.norms_scale = attention == "values", norm == "scale"
        self._check_dtype(name)

    def _check_dtype(self, rule: str) -> None:
        """Raise if the rule needs a float64 model and this is not one."""
        dtypes = {weight.dtype for weight in self.model.parameters() if weight.is_floating_point()}
        if self.rule.needs_float64(self.norms_scale) and dtypes - {torch.float64}:
            found = ", ".join(sorted(map(str, dtypes)))
            problem = f"needs a float64 model, this one is {found}: its scores can be wrong though their totals hold"
            remedy = "load it with hni.load(..., dtype=\"float64\") or --dtype float64, or use rule='alpha_beta'"
            raise InputError("rule", rule, problem, remedy)

    @classmethod
    def settings(cls) -> dict[str, Parameter]:
        """Settings of the method and of all rules."""
        rule, *own = (item for item in super().settings().items() if item[0] != "settings")
        return {rule[0]: rule[1]} | rule_settings() | dict(own)

    @classmethod
    def shares(cls, settings: Mapping[str, Any]) -> bool:
        """Whether the rule keeps a total of 1: not if biases absorb a part."""
        return not RULES[str(settings.get("rule", "alpha_beta")).partition(":")[0]].absorbs

    @property
    def signed(self) -> bool:
        """Whether the rule's shares can be negative."""
        return self.rule.signed

    def explain(self, batch: Batch) -> Scores:
        """Relevance of every token for every step of a batch."""
        with workers(self.model.device):
            return Scores.join(self._on_threads(self._explain, batch), interleave)

    def _on_threads(self, work: Callable[[Batch, int], Found], batch: Batch) -> list[Found]:
        """What `work` makes of the sentences of each thread, given how many threads work at the same time.

        With fewer sentences than threads, the threads share each walk.
        """
        pieces = shares(len(batch.labels)) if len(batch.labels) >= thread_count() else [slice(None)]
        return side_by_side(lambda piece: work(batch.take(piece), len(pieces)), pieces)

    def _explain(self, batch: Batch, together: int) -> Scores:
        recording, chosen, log_probs = self._record(batch)
        source = log_probs.new_zeros(*batch.labels.shape, batch.input_ids.shape[1])
        decoder = log_probs.new_zeros(*batch.labels.shape, batch.labels.shape[1])
        absorbed = torch.zeros_like(log_probs)
        for walk in self._walks(recording, chosen, together):
            source[walk.b, walk.steps, : walk.S] = walk.source
            decoder[walk.b, walk.steps, : walk.T] = walk.prefix
            absorbed[walk.b, walk.steps] = walk.absorbed
        kept = batch.compared[..., None]
        source, decoder = source * kept, decoder * kept
        gap = (1 - source.sum(-1) - decoder.sum(-1) - absorbed).abs().masked_fill(~batch.compared, 0).amax(-1)
        first = recording.logits.argmax(-1) == batch.labels
        return Scores.from_inputs(source, decoder, log_probs, conservation_gap=gap, chosen=first)

    def head_relevance(self, batches: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Mean over all steps of a data set of each head's share of its layer's relevance (voita2019, section 4).

        Args:
            batches: batches of input_ids, labels and, if padded, attention_mask.

        Returns:
            {"encoder": [L, H], "decoder": [L, H], "cross": [L, H]}; rows sum to 1, but steps at which a layer's heads
            have no relevance count as 0, and so do pruned heads. A closed gate's head still gets its even
            part of the output projection's bias.
        """
        return self.mean_head_relevance(make_batch(self.model, **inputs) for inputs in batches)

    def mean_head_relevance(self, batches: Iterable[Batch]) -> dict[str, Tensor]:
        """`head_relevance` of checked batches."""
        total: dict[str, Tensor] = {}
        count = 0
        for batch in batches:
            for kind, sums in self.head_relevance_sums(batch).items():
                total[kind] = total.get(kind, 0) + sums.sum(0)
            count += sum(batch.target_lengths)
        if not count:
            raise InputError("batches", None, "no batch was given", "an iterator can be used only once")
        return {kind: rows / count for kind, rows in total.items()}

    def head_relevance_sums(self, batch: Batch) -> dict[str, Tensor]:
        """Sum over the steps of each sentence of each head's share of its layer's relevance: {kind: [B, L, H]}."""
        found = []
        with evaluating(self.model), workers(self.model.device):
            for part in self.memory.parts(batch):
                sums = self._on_threads(self._head_relevance_sums, part)
                found.append({kind: interleave([piece[kind] for piece in sums]) for kind in KINDS})
        return {kind: torch.cat([sums[kind] for sums in found]) for kind in KINDS}

    def _head_relevance_sums(self, batch: Batch, together: int) -> dict[str, Tensor]:
        """The same for a part that fits into memory."""
        kinds = {kind: self.parts.attentions(kind) for kind in KINDS}
        like: dict[str, Any] = {"dtype": torch.float64, "device": self.model.device}
        size = len(batch.labels)
        total = {kind: torch.zeros(size, len(a), a[0].all_heads, **like) for kind, a in kinds.items()}
        recording, chosen, _ = self._record(batch)
        for walk in self._walks(recording, chosen, together):
            for kind, layers in kinds.items():
                for row, attention in zip(total[kind][walk.b], layers, strict=True):
                    if attention.heads:
                        heads = walk.heads[attention.core].double()  # [K, H]
                        given = heads.sum(-1, keepdim=True)
                        row[attention.heads] += (heads / given.masked_fill(given == 0, 1)).sum(0)
        return total

    def _check_gap(self, walk: "_Walk") -> None:
        """Raise unless the relevance of each step, including the absorbed part, adds up to 1."""
        gap = (1 - walk.source.sum(-1) - walk.prefix.sum(-1) - walk.absorbed).abs().max().item()
        limit = self.rule.max_gap(self.norms_scale)
        if not gap <= limit:  # NaN too
            problem = f"{self.rule} has a conservation gap of {gap:.1e} in {self.model.dtype}, above {limit:g}"
            raise InputError("rule", None, problem, self._remedy())

    def _remedy(self) -> str:
        """The settings that lower the gap and are not in use."""
        norm = "jacobian" if self.rule.absorbs else "scale"
        choices = {
            "rule='alpha_beta'": not isinstance(self.rule, RULES["alpha_beta"]),
            f"norm='{norm}'": self.norms_scale == self.rule.absorbs,
            "attention='values'": not self.values_only,
            "a float64 model": self.model.dtype != torch.float64,
        }
        unused = [choice for choice, is_unused in choices.items() if is_unused]
        listed = [", ".join(unused[:-1]), *unused[-1:]]
        return f"use {' or '.join(filter(None, listed))}" if unused else ""

    def _record(self, batch: Batch) -> tuple[Recording, Tensor, Tensor]:
        """A verified forward pass, the items explained [B, T], and log-probabilities [B, T] of the labels."""
        recording = Recording(self.model, self.parts, batch, self.title)
        log_probs = label_log_probs(recording.logits, batch.labels)
        first = self.logit == "top1" and batch.contrast is None
        chosen = recording.logits.argmax(-1) if first else batch.labels.clamp(min=0)
        recording.verify(chosen)
        return recording, chosen, log_probs

    def _walks(self, recording: Recording, chosen: Tensor, together: int) -> Iterator["_Walk"]:
        """The finished and checked walks of each sentence, one for each block of steps.

        `together` is the number of threads that walk at the same time.
        """
        batch = recording.batch
        for b, (S, T) in enumerate(zip(batch.source_lengths, batch.target_lengths, strict=True)):
            # about ten tensors [tokens, steps, units] are alive at the widest point
            one = 10 * max(S, T) * self.memory.widest * recording.logits.element_size()
            size = max(1, self.memory.half // together // one)
            for start in range(0, T, size):
                walk = _Walk(self, recording, chosen, b, (S, T), slice(start, min(start + size, T)))
                walk.run()
                self._check_gap(walk)
                yield walk


class _Walk:
    """The backward walk for some steps of one sentence; relevance tensors are [tokens, steps, units]."""

    def __init__(
        self, lrp: LRP, recording: Recording, chosen: Tensor, b: int, lengths: tuple[int, int], steps: slice
    ) -> None:
        self.parts, self.rule, self.values_only, self.norms_scale = (
            lrp.parts,
            lrp.rule,
            lrp.values_only,
            lrp.norms_scale,
        )
        self.recording, self.chosen, self.b, self.steps = recording, chosen, b, steps
        (self.S, self.T), self.K = lengths, steps.stop - steps.start
        self.heads: dict[nn.Module, Tensor] = {}
        # rules that read outputs need them unrounded: half precision would not add up
        self.rounded = self.rule.absorbs and lrp.model.dtype in (torch.float16, torch.bfloat16)

    # which steps a token can have relevance for
    def _all(self, token: int) -> tuple[int, int]:
        return 0, self.K

    def _own(self, token: int) -> tuple[int, int]:
        return max(token - self.steps.start, 0), min(token - self.steps.start + 1, self.K)

    def _later(self, token: int) -> tuple[int, int]:
        return max(token - self.steps.start, 0), self.K

    @torch.inference_mode()
    def run(self) -> None:
        """Fill `source` [K, S], `prefix` [K, T] (the decoder's inputs), `absorbed` [K] and `heads` [K, H] by core."""
        self.absorbed = self.recording.logits.new_zeros(self.K)
        relevance = self._from_logits()
        self.memory = relevance.new_zeros(self.S, self.K, self.recording.memory.shape[-1])
        # above the last self-attention, a step only has relevance at its own position
        self.prefix = self._stack(relevance, self.parts.decoder, self._own)
        self.source = self._stack(self.memory, self.parts.encoder, self._all)
        del self.memory  # the walk's results are kept longer

    def _in(self, module: nn.Module, length: int) -> Tensor:
        return self.recording.input(module)[self.b, :length]

    def _out(self, module: nn.Module, length: int) -> Tensor:
        return self.recording.output(module)[self.b, :length]

    def _from_logits(self) -> Tensor:
        x, weight, bias = self.recording.projection(self.chosen, (self.b, self.steps))
        if (contrast := self.recording.batch.contrast) is not None:  # the difference of two logits is also one unit
            _, other, other_bias = self.recording.projection(contrast.clamp(min=0), (self.b, self.steps))
            differs = self.recording.batch.compared[self.b, self.steps]
            weight, bias = weight - other * differs[:, None], bias - other_bias * differs
        relevance = x.new_zeros(self.T, self.K, x.shape[-1])
        at = torch.arange(self.K, device=x.device)
        relevance[at + self.steps.start, at] = self.rule.projection(x, weight, bias, self.absorbed)
        if (head := self.parts.output_head) is None:
            return relevance
        relevance = self._norm(relevance, head.norm, self._own)  # activations pass it unchanged
        return self._linear(relevance, head.dense, self._own)

    def _stack(self, relevance: Tensor, stack: Stack, steps: engine.Steps) -> Tensor:
        """Relevance of a stack's tokens [K, L]."""
        relevance = self._norm(relevance, stack.final_norm, steps)
        for sub in reversed(stack.sublayers):
            relevance = self._sublayer(relevance, sub, steps)
            if isinstance(sub.branch, Attention) and sub.branch.kind == "decoder":
                steps = self._later
        return self._norm(relevance, stack.embedding_norm, steps).sum(-1).T

    def _sublayer(self, relevance: Tensor, sub: Sublayer, steps: engine.Steps) -> Tensor:
        """Norm, addition and branch, in the order of the family: relevance of the incoming stream."""
        length = len(relevance)
        first, last = sub.branch.ends
        if not sub.norm_first:
            relevance = self._norm(relevance, sub.norm, steps)
        stream, added = self._in(sub.norm if sub.norm_first else first, length), self._out(last, length)
        came = relevance
        relevance, inside = self.rule.addition(came, stream, added, self.absorbed)
        if isinstance(sub.branch, Attention) and not sub.branch.heads:  # a constant passes nothing on
            return self.rule.constant(came, relevance, inside, self.absorbed)
        if isinstance(sub.branch, FeedForward):
            inside = self._feed_forward(inside, sub.branch, steps)
        else:
            inside = self._attention(inside, sub.branch, steps)
            if sub.branch.kind == "decoder":
                steps = self._later
        if sub.norm_first:
            inside = self._norm(inside, sub.norm, steps)
        return relevance + inside

    def _norm(self, relevance: Tensor, norm: nn.Module | None, steps: engine.Steps) -> Tensor:
        if norm is None or self.norms_scale:
            return relevance
        x = self._in(norm, len(relevance))
        z = normed(norm, x) if self.rounded else self._out(norm, len(relevance))
        return self.rule.norm(relevance, x, z, norm, steps, self.absorbed)

    def _linear(self, relevance: Tensor, module: Any, steps: engine.Steps) -> Tensor:
        x = self.recording.linear_input(module, (self.b, slice(len(relevance))))  # it passes gates unchanged
        weight, bias = widened(module.weight), None if module.bias is None else widened(module.bias)
        z = F.linear(x, weight, bias) if self.rounded else self._out(module, len(relevance))
        return self.rule.linear(relevance, x, z, weight, bias, steps, self.absorbed)

    def _feed_forward(self, relevance: Tensor, ffn: FeedForward, steps: engine.Steps) -> Tensor:
        relevance = self._linear(relevance, ffn.outer, steps)  # activations pass it unchanged
        if ffn.gate is None:
            return self._linear(relevance, ffn.inner, steps)
        factors = ffn.activation(self._out(ffn.inner, len(relevance))), self._out(ffn.gate, len(relevance))
        to_inner, to_gate = self.rule.product(relevance, *factors)
        return self._linear(to_inner, ffn.inner, steps) + self._linear(to_gate, ffn.gate, steps)

    def _attention(self, relevance: Tensor, attention: Attention, steps: engine.Steps) -> Tensor:
        """Relevance of the stream; that of the encoder's output is added to `memory`."""
        length, keys = len(relevance), self.T if attention.kind == "decoder" else self.S

        def split(x: Tensor) -> Tensor:  # [L, ..., H * D] -> [H, L, ..., D]
            return x.unflatten(-1, (-1, attention.head_size)).movedim(-2, 0)

        def merge(x: Tensor) -> Tensor:  # [H, L, ..., D] -> [L, ..., H * D]
            return x.movedim(0, -2).flatten(-2)

        relevance = split(self._linear(relevance, attention.output, steps))
        self.heads[attention.core] = relevance.sum((1, 3)).T  # [K, H]
        modules = ((attention.query, length), (attention.key, keys), (attention.value, keys))
        q, k, v = (split(self._out(module, n)) for module, n in modules)
        seen = self.b, slice(None), slice(length), slice(keys)
        fixed = self.values_only or attention.calibrated  # fused weights are constants
        scores = self.recording.scores(attention)[seen] if self.rule.absorbs and not fixed else None
        w = self.recording.weights[attention.core][seen]
        out = w @ v if self.rounded else split(self._in(attention.output, length))
        core = engine.Core(q, k, v, out, w, attention.scale, scores, fixed)
        to_q, to_k, to_v = map(merge, self.rule.attention(relevance, core, steps, self.absorbed))
        key_steps = self._later if attention.kind == "decoder" else self._all
        to_stream = self._linear(to_q, attention.query, steps)
        to_keys = self._linear(to_k, attention.key, key_steps)
        to_keys += self._linear(to_v, attention.value, key_steps)
        if attention.kind == "cross":
            self.memory += to_keys
            return to_stream
        return to_stream + to_keys
