"""Attention rollout (Abnar and Zuidema 2020) through encoder and decoder.

Definitions: docs/methods.md, Attention baselines.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.attention import attention_weights, returned_weights
from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.layered import roll_out
from hf_nmt_interp.attribution.tape import Tape, widened
from hf_nmt_interp.decoding.batch import Batch, first_choices, label_log_probs, run_model
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Attention, any_parts
from hf_nmt_interp.models.kinds import KINDS


class Rollout(AttributionMethod):
    """Attention weights of all layers, mean over heads, multiplied: 0.5 A + 0.5 I for each attention.

    Cross-attention counts the encoder's states and the decoder's stream as one half each, so the source share is the
    same at every step and not meaningful.

    Args:
        model: any encoder-decoder that has attention weights of all layers.
    """

    name = "rollout"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        if self.parts.weighted_sums:
            problem = f"{type(model).__name__} has no attention in its encoder"
            raise InputError("model", None, problem, "use attention")

    @classmethod
    def fits(cls, model: PreTrainedModel) -> bool:
        """Whether the encoder has attention: LSTMs and convolutions have none."""
        return not any_parts(model).weighted_sums

    @classmethod
    def models(cls) -> list[str]:
        """Models that have or return the weights of all layers."""
        return ["any Transformer that returns whole attention weights"]

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """Weights of all layers, multiplied."""
        logits, weights = (self._recorded if self.parts.has_layers else self._returned)(batch)
        like = weights["cross"][0]
        encoder = [_with_stream(matrix) for matrix in weights["encoder"]]
        decoder = [
            (_with_stream(own), cross / 2, 1 - cross.any(-1, keepdim=True) / 2)
            for own, cross in zip(weights["decoder"], weights["cross"], strict=True)
        ]
        source, target = roll_out(encoder, decoder, like)
        kept = (batch.labels != -100)[..., None]
        log_probs, chosen = label_log_probs(logits, batch.labels), first_choices(logits, batch)
        return Scores.from_inputs(source * kept, target * kept, log_probs, chosen=chosen)

    def _recorded(self, batch: Batch) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """Logits, and the weights [B, P, S] of each kind's layers, 0 for a layer without heads."""
        attentions = {kind: self.parts.attentions(kind) for kind in KINDS}
        with Tape([module for layers in attentions.values() for a in layers for module in a.recorded]) as tape:
            logits = run_model(self.model, batch.inputs()).logits

        def mean(attention: Attention) -> Tensor:
            return widened(attention_weights(tape, attention, batch.attention_mask)).mean(1) * bool(attention.heads)

        return logits, {kind: [mean(attention) for attention in layers] for kind, layers in attentions.items()}

    def _returned(self, batch: Batch) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """The same for a family whose layers are not known, from the model's output."""
        logits, cross, decoder, encoder = returned_weights(self.model, batch.inputs())
        found = {"cross": cross, "decoder": decoder, "encoder": encoder}
        S, T = batch.input_ids.shape[1], batch.labels.shape[1]
        windows = getattr(self.model.config, "attention_window", None)  # LED's columns are offsets
        for kind, size in (("encoder", (S, S)), ("decoder", (T, T))):
            if windows or not found[kind] or not all(_are_weights(layer, size) for layer in found[kind]):
                problem = f"{type(self.model).__name__} does not return whole {kind} attention weights"
                raise InputError("model", None, problem, "use attention or saliency")
        return logits, {kind: [widened(layer).mean(1) for layer in layers] for kind, layers in found.items()}


def _are_weights(found: object, size: tuple[int, int]) -> bool:
    """Whether rows sum to 1, or to 0 for padding; ProphetNet returns scores, PEGASUS-X a dict of local weights."""
    if not isinstance(found, Tensor) or found.shape[2:] != size:
        return False
    total = found.sum(-1)
    return bool((found >= 0).all() and ((total - 1).abs().minimum(total.abs()) < 1e-2).all())


def _with_stream(weights: Tensor) -> Tensor:
    """0.5 A + 0.5 I for A [B, L, L]; I for attention without heads."""
    return weights / 2 + torch.diag_embed(1 - weights.any(-1) / 2)
