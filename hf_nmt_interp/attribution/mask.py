"""Masks of calibrated cross-attention as attribution (lu2021, section 3.3).

Definitions: docs/methods.md, Attention baselines.
"""

import torch
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.decoding.batch import Batch, label_log_probs, run_model
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.calibrated.modeling_calibrated import CalibratedAttentionMixin


class MaskPerturbation(AttributionMethod):
    """1 - m of a calibrated model: how much its mask network perturbs each source token; the prefix is 0.

    Args:
        model: a calibrated translator.
        layer: decoder layer, -1 is the last.
        head: one head, None for the mean over heads.
    """

    name = "mask"

    def __init__(self, model: PreTrainedModel, layer: int = -1, head: int | None = None) -> None:
        super().__init__(model)
        if not self.fits(model):
            remedy = "train one with trainer_scripts/train_calibrated.py, or use another method"
            raise InputError("method", "mask", f"needs a calibrated model, not {type(model).__name__}", remedy)
        layers = len(self.parts.decoder.layers)
        if not -layers <= layer < layers:
            raise InputError("layer", layer, "is out of range", f"the decoder has {layers} layers, 0 to {layers - 1}")
        heads = self.parts.attentions("cross")[layer].heads
        if head not in (None, *heads):
            raise InputError("head", head, f"is not a head of layer {layer}", f"it has 0 to {len(heads) - 1}")
        self.layer, self.head = layer, head

    @classmethod
    def fits(cls, model: PreTrainedModel) -> bool:
        """Whether the model has masks."""
        return hasattr(model, "mask_parameters")

    @classmethod
    def models(cls) -> list[str]:
        """Classes of the calibrated models."""
        return sorted(kind.__name__ for kind in CalibratedAttentionMixin.__subclasses__())

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """1 - m of the chosen layer and head."""
        outputs = run_model(self.model, batch.inputs() | {"output_calibration": True})
        found = 1 - outputs.masks[self.layer]  # [B, H, T, S]
        source = found.mean(1) if self.head is None else found[:, self.head]
        source = source * (batch.labels != -100)[..., None]
        prefix = source.new_zeros(*batch.labels.shape, batch.labels.shape[1])
        return Scores(source, prefix, prefix[..., 0], label_log_probs(outputs.logits, batch.labels))
