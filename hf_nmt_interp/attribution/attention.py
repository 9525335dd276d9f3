"""Attention weights as attribution: the baselines (ding2019, section 5; Chen et al. 2020 for the shifted one).

Definitions: docs/methods.md, Attention baselines.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.decoding.batch import Batch, evaluating, first_choices, label_log_probs, run_model
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models.calibrated.attention import NAME as CALIBRATED
from hf_nmt_interp.models.families import Attention, WeightedSum, capacity


def attention_weights(tape: Tape, attention: Attention | WeightedSum, mask: Tensor) -> Tensor:
    """Attention weights [B, H, P, S] from recorded queries and keys, for any attention implementation.

    For calibrated cross-attention these are the fused weights.

    Args:
        tape: a tape that recorded the attention's `recorded`.
        attention: the attention.
        mask: [B, S] of the source, 0 for padding; a decoder's keys are hidden by causality.
    """
    if isinstance(attention, WeightedSum) or attention.calibrated:
        return tape.output(attention.core)[1]
    return attention_scores(tape, attention, mask).softmax(-1)


def attention_scores(tape: Tape, attention: Attention, mask: Tensor) -> Tensor:
    """Input [B, H, P, S] of the softmax of `attention_weights`: c q.k plus T5's position bias, -inf if hidden."""

    def heads(x: Tensor) -> Tensor:  # [B, L, H * D] -> [B, H, L, D]
        return x.unflatten(-1, (-1, attention.head_size)).transpose(1, 2)

    scores = (
        attention.scale * heads(tape.output(attention.query)) @ heads(tape.output(attention.key)).transpose(-1, -2)
    )
    output = tape.output(attention.core)
    if len(output) == 3 and attention.kind != "cross":  # T5 also returns its position bias, for all heads
        scores = scores + output[1][:, attention.heads]
    elif len(output) == 2 and getattr(attention.core, "has_relative_attention_bias", False):  # UMT5 has one per layer
        core: Any = attention.core
        scores = scores + core.compute_bias(*scores.shape[-2:])
    if attention.kind == "decoder":
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return scores.masked_fill(hidden, -torch.inf)
    mask = F.pad(mask, (0, scores.shape[-1] - mask.shape[-1]))  # a bias for real tokens may be shorter
    return scores.masked_fill(mask[:, None, None] == 0, -torch.inf)


_EAGER = threading.Lock()
_SWITCHED: dict[Any, tuple[int, list[tuple[Any, str]]]] = {}  # number of contexts, original implementations


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Context in which attention returns its weights; the implementation is restored. Threads may overlap."""
    with _EAGER:
        found = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values()
        configs = [config for config in found if config._attn_implementation != CALIBRATED]  # which returns weights
        count, before = _SWITCHED.get(model, (0, [(config, config._attn_implementation) for config in configs]))
        _SWITCHED[model] = count + 1, before
        for config, _ in before:
            config._attn_implementation = "eager"
    try:
        yield
    finally:
        with _EAGER:
            count, before = _SWITCHED.pop(model)
            if count > 1:
                _SWITCHED[model] = count - 1, before
            else:
                for config, implementation in before:
                    config._attn_implementation = implementation


def returned_weights(model: Any, inputs: Mapping[str, Any]) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
    """Logits, and the weights that a model returns for every layer: cross [B, H, P, S], decoder and encoder."""
    with _eager(model):
        output = run_model(model, {**inputs, "output_attentions": True})
    kinds = ("cross", "decoder", "encoder")
    cross, own, encoder = (list(getattr(output, f"{kind}_attentions", None) or ()) for kind in kinds)
    if not cross or any(weights is None for weights in cross):
        problem = f"{type(model).__name__} does not return cross-attention weights"
        raise InputError("model", None, problem, "use saliency")
    P, S = inputs["decoder_input_ids"].shape[1], inputs["input_ids"].shape[1]
    if cross[0].shape[2] != P:  # ProphetNet returns scores, of the main stream and then of the predicting ones
        cross = [scores[:, :, P : 2 * P].softmax(-1) for scores in cross]
    return output.logits, [weights[..., :S] for weights in cross], own, encoder


def all_labels_as_inputs(model: PreTrainedModel, batch: Batch) -> Tensor:
    """The decoder's input [B, T + 1] with one more position, so the last label is also an input."""
    _, limit = capacity(model, "target")
    if limit is not None and batch.labels.shape[1] >= limit:
        problem = f"tokens, but shifted weights need one more of the model's {limit} positions"
        raise InputError("labels", batch.labels.shape[1], problem, "split the sentence")
    longer = torch.cat([batch.decoder_input_ids, torch.zeros_like(batch.labels[:, :1])], 1)
    end = (batch.labels != -100).sum(-1, keepdim=True)
    return longer.scatter(1, end, batch.labels.gather(1, end - 1))


def _choice(model: PreTrainedModel, head: int | None, shifted: bool | None) -> tuple[int, int | None, bool | None]:
    """Layer, head and `shifted` stored in the model's config; they must agree with the given values."""
    stored = getattr(model.config, "alignment", None)
    if not stored or head not in (None, stored["head"]) or shifted not in (None, stored["shifted"]):
        return -1, head, shifted
    return stored["layer"], stored["head"], stored["shifted"]


class AttentionWeights(AttributionMethod):
    """Cross-attention weights for the source, decoder self-attention weights of the same layer for the prefix.

    Both sum to 1 at each step, so the source share is not meaningful here, unlike for LRP. Decoders without
    self-attention, such as LSTMs and convolutions, have a prefix of 0. For families whose layers are not known,
    `output_attentions` is used.

    Args:
        model: any supported translator.
        layer: decoder layer, -1 is the last; "mean" for the mean over layers; None for the layer, head and `shifted`
            stored in the model's config (see `best_attention`), or the last layer if nothing is stored.
        head: one head, None for the mean over heads.
        shifted: the source weights of y_t are those of the step that has y_t as its input (Chen et al. 2020).
    """

    name = "attention"
    aligns_online = True

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int | str | None = None,
        head: int | None = None,
        shifted: bool | None = None,
    ) -> None:
        super().__init__(model)
        if layer is None:
            layer, head, shifted = _choice(model, head, shifted)
        if isinstance(layer, str):
            check_choice("layer", layer, ["mean"])
            if head is not None:
                raise InputError("head", head, "is a head of one layer", "leave it out for layer='mean'")
        self.layer, self.head, self.shifted = layer, head, bool(shifted)
        self.cross, self.own = self._chosen(self.parts.cross), self._chosen(self.parts.attentions("decoder"))
        if self.parts.cross:
            self._check_heads(self.cross[0].heads if self.cross else [])

    def _chosen(self, layers: Sequence[Any]) -> list[Any]:
        """The chosen layers that have heads."""
        if isinstance(self.layer, str):
            return [layer for layer in layers if getattr(layer, "heads", True)]
        if layers and not -len(layers) <= self.layer < len(layers):
            known = f"the decoder has {len(layers)} layers, 0 to {len(layers) - 1}"
            raise InputError("layer", self.layer, "is out of range", known)
        return [layers[self.layer]] if layers else []

    def _check_heads(self, heads: Sequence[int]) -> None:
        if not heads:
            raise InputError("layer", self.layer, "has no cross-attention heads left", "choose another layer")
        if self.head not in (None, *heads):
            kept = ", ".join(map(str, heads))
            problem = f"is not a cross-attention head of layer {self.layer}"
            raise InputError("head", self.head, problem, f"it has {kept}")

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """Weights of the chosen layer and head."""
        inputs = batch.inputs()
        if self.shifted:
            inputs["decoder_input_ids"] = all_labels_as_inputs(self.model, batch)
        logits, source, decoder = (self._recorded if self.cross else self._returned)(inputs)
        T = batch.labels.shape[1]
        source = source[:, 1:] if self.shifted else source
        decoder = source.new_zeros(len(source), T, T) if decoder is None else decoder[:, :T, :T]
        kept = (batch.labels != -100)[..., None]
        log_probs = label_log_probs(logits[:, :T], batch.labels)
        chosen = first_choices(logits[:, :T], batch)
        return Scores.from_inputs(source * kept, decoder * kept, log_probs, chosen=chosen)

    def soft_links(self, batch: Batch) -> Tensor:
        """Only source weights, without logits if the model can skip them."""
        return soft_links([self], batch)[0]

    def _recorded(self, inputs: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logits, and weights of the source and of the decoder's inputs, from recorded queries and keys."""
        mask = inputs["attention_mask"]
        with Tape([module for attention in (*self.cross, *self.own) for module in self._reads(attention)]) as tape:
            logits = run_model(self.model, inputs).logits
        own = self.weights(tape, self.own, mask) if self.own else None
        return logits, self.weights(tape, self.cross, mask), own

    def _reads(self, attention: Attention | WeightedSum) -> list[nn.Module]:
        """The modules of an attention that a forward pass must record."""
        return attention.recorded

    def _returned(self, inputs: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same from the model's output."""
        logits, cross, own, _ = returned_weights(self.model, inputs)
        self._check_heads(range(cross[0].shape[1]))

        def mean(layers: list[Tensor]) -> Tensor:
            chosen = torch.stack(self._chosen(layers)).mean(0)
            return chosen.mean(1) if self.head is None else chosen[:, self.head]

        return logits, mean(cross), mean(own) if own else None

    def weights(self, tape: Tape, attentions: Sequence[Attention | WeightedSum], mask: Tensor) -> Tensor:
        """[B, P, keys] of the chosen head, mean over layers; zeros if self-attention has lost it."""
        return torch.stack([self._weights(tape, attention, mask) for attention in attentions]).mean(0)

    def _weights(self, tape: Tape, attention: Attention | WeightedSum, mask: Tensor) -> Tensor:
        weights = attention_weights(tape, attention, mask)
        if self.head is None and attention.heads:
            return weights.mean(1)
        if self.head in attention.heads:
            return weights[:, attention.heads.index(self.head)]
        return torch.zeros_like(weights[:, 0])


class ShiftedAttention(AttentionWeights):
    """`AttentionWeights` with `shifted=True`."""

    name = "shifted_attention"

    def __init__(self, model: PreTrainedModel, layer: int | str | None = None, head: int | None = None) -> None:
        super().__init__(model, layer, head, shifted=True)


@torch.no_grad()
def soft_links(methods: Sequence[AttentionWeights], batch: Batch) -> list[Tensor]:
    """Source weights [B, T, S] of several choices of one model's attention, from one forward pass if possible.

    They may contain NaN or inf, like the model.
    """
    if not all(method.cross for method in methods):
        return [method.run(batch).source for method in methods]
    model = methods[0].model
    inputs, real = batch.inputs(), (batch.labels != -100)[..., None]
    if any(method.shifted for method in methods):
        inputs["decoder_input_ids"] = all_labels_as_inputs(model, batch)  # the other rows are the same
    read = [m for method in methods for cross in method.cross for m in method._reads(cross)]
    with evaluating(model), Tape(dict.fromkeys(read)) as tape:
        run_model(model.base_model, inputs)  # without logits, where the model has such a part
    found = [method.weights(tape, method.cross, batch.attention_mask)[:, int(method.shifted) :] for method in methods]
    return [weights[:, : batch.labels.shape[1]] * real for weights in found]
