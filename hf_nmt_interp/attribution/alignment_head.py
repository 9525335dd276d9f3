"""Soft links of a trained alignment head (Chen et al. 2020) as attribution.

Definitions: docs/methods.md, Alignment head.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.attention import all_labels_as_inputs
from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.decoding.batch import Batch, evaluating, first_choices, label_log_probs, run_model
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.aligned import AlignmentHeadMixin


@dataclass(frozen=True)
class HeadInputs:
    """The modules whose outputs the head reads."""

    recorded: list[nn.Module]  # decoder states, encoder states


class AlignmentHeadMethod(AttributionMethod):
    """Soft links of the model's alignment head for the source; the prefix and the start token get none.

    Args:
        model: a translator with an alignment head, e.g. an `AlignedMarianMTModel`.
    """

    name = "alignment_head"
    aligns_online = True
    shifted = True

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        if not self.fits(model):
            remedy = "train one with trainer_scripts/train_alignment.py, or use attention"
            raise InputError("model", None, f"{type(model).__name__} has no alignment head", remedy)
        self.cross = [HeadInputs(list(self.head_model.alignment_inputs()))]

    @property
    def head_model(self) -> Any:
        """The model, with its head."""
        return self.model

    @classmethod
    def fits(cls, model: PreTrainedModel) -> bool:
        """Whether a model has a head."""
        return hasattr(model, "alignment_head")

    @classmethod
    def models(cls) -> list[str]:
        """Classes of models with a head, including gated and calibrated ones."""
        kinds = AlignmentHeadMixin.__subclasses__()
        return sorted(kind.__name__ for kind in kinds if kind.__module__ == AlignmentHeadMixin.__module__)

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """The head's rows for the steps that read the labels."""
        output, source = self._run(partial(run_model, self.model), batch)
        logits, T = output.logits[:, :-1], batch.labels.shape[1]
        log_probs, chosen = label_log_probs(logits, batch.labels), first_choices(logits, batch)
        return Scores.from_inputs(source, source.new_zeros(len(source), T, T), log_probs, chosen=chosen)

    @torch.no_grad()
    def soft_links(self, batch: Batch) -> Tensor:
        """The same without logits, if the model can skip them."""
        with evaluating(self.model):
            return self._run(lambda inputs: self.model.base_model(**inputs), batch)[1]

    def _run(self, run: Callable[[dict[str, Any]], Any], batch: Batch) -> tuple[Any, Tensor]:
        """The output of a forward pass, and the head's rows [B, T, S] for the labels.

        States are recorded, because `output_hidden_states` would leave hooks on the model.
        """
        with Tape(self.cross[0].recorded) as tape:
            output = run(batch.inputs() | {"decoder_input_ids": all_labels_as_inputs(self.model, batch)})
        soft = self.weights(tape, self.cross, batch.attention_mask)[:, 1:]
        return output, soft.to(self.model.dtype) * (batch.labels != -100)[..., None]

    def weights(self, tape: Tape, cross: Sequence[HeadInputs], mask: Tensor) -> Tensor:
        """[B, P, S] of the last forward pass, from recorded states; each source may be repeated for several rows."""
        states, memory = (_states(tape.output(module)) for module in cross[0].recorded)
        memory = memory.repeat_interleave(len(states) // len(memory), 0)
        return self.head_model.alignment_head(states, memory, mask)


def _states(output: Any) -> Tensor:
    """The states [B, L, d] that a layer or a stack returns."""
    return output if isinstance(output, Tensor) else output[0]
