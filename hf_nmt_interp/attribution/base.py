"""What every attribution method has in common: checked input, an untouched model, scores of known shape.

Definitions: docs/methods.md, Attribution result.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.decoding.batch import Batch, evaluating, make_batch
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import any_parts, check_devices


@dataclass
class Scores:
    """Contributions of every token to every step of a batch; padding is 0.

    Attributes:
        source: [B, T, S] of the source tokens.
        prefix: [B, T, T] of the target tokens before the step.
        start: [B, T] of the decoder start token.
        log_probs: [B, T] of the labels, in nats.
        conservation_gap: [B] largest difference over the steps between the total and what it must be, for methods
            that conserve one: 1 for LRP, with what biases absorb under some rules; for integrated gradients the score
            minus that of the baseline.
        chosen: [B, T] whether the labels are the model's first choices, where a method knows it.
    """

    source: Tensor
    prefix: Tensor
    start: Tensor
    log_probs: Tensor
    conservation_gap: Tensor | None = None
    chosen: Tensor | None = None

    @classmethod
    def from_inputs(cls, source: Tensor, decoder: Tensor, log_probs: Tensor, **more) -> "Scores":
        """From scores of the decoder's inputs [B, T, T], whose first is the start token."""
        prefix = torch.zeros_like(decoder)
        prefix[..., :-1] = decoder[..., 1:]
        return cls(source, prefix, decoder[..., 0].contiguous(), log_probs, **more)


class AttributionMethod(ABC):
    """An attribution method: called on a batch, it returns `Scores`.

    To add one: subclass, set `name`, write `explain`, and add the class to `METHODS`. The attributes tell the rest of
    the library what it can do.

    Attributes:
        name: the name that users choose it by.
        shares_total: whether source, prefix and start share out a total at each step, so that the source share is
            meaningful.
        word_settings: settings to explain the words of a given target, if the defaults explain other words.
        contrasts: whether it explains a score of the label, which can be compared with that of another label.
        aligns_online: whether its scores of a token are known while `generate()` runs; it then has `cross`, `shifted`
            and `weights` as `AttentionWeights` does.
    """

    name: ClassVar[str]
    shares_total: ClassVar[bool] = False
    word_settings: ClassVar[Mapping[str, Any]] = {}
    contrasts: ClassVar[bool] = False
    aligns_online: ClassVar[bool] = False

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.parts = any_parts(model)
        check_devices(model)
        default = torch.get_default_device()
        if default.type not in ("cpu", model.device.type):  # new tensors would not be where the model is
            problem = f"torch's default device is {default}, but the model is on {model.device}"
            raise InputError("model", None, problem, f"call torch.set_default_device({str(model.device)!r})")

    def __call__(
        self,
        input_ids: Tensor,
        labels: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        contrast: Tensor | None = None,
    ) -> Scores:
        """Explain all steps of a batch.

        Args:
            input_ids: [B, S] source tokens, padded on the right.
            labels: [B, T] target tokens without the start token, -100 is padding.
            attention_mask: [B, S], 0 for padding.
            decoder_input_ids: [B, T] what the decoder reads; None for the family's own shift of the labels.
            contrast: [B, T] other labels: explains, where they differ, why the labels and not these; -100 for no
                comparison. Other steps get scores of 0.
        """
        return self.run(make_batch(self.model, input_ids, labels, attention_mask, decoder_input_ids, contrast))

    def run(self, batch: Batch) -> Scores:
        """Explain all steps of a checked batch."""
        if batch.contrast is not None and not self.contrasts:
            problem = f"method {self.name!r} does not explain a score of the label, so there is nothing to compare"
            raise InputError("contrast", None, problem, "use one that does, e.g. lrp or saliency")
        try:
            with evaluating(self.model):
                scores = self.explain(batch)
        except RuntimeError as error:
            kinds = {str(weight.dtype) for weight in self.model.parameters()}
            if len(kinds) < 2 or "dtype" not in str(error):
                raise
            problem = f"its weights have different dtypes, {' and '.join(sorted(kinds))}"
            raise InputError("model", None, problem, "convert it, e.g. with model.float()") from error
        if not all(values.isfinite().all() for values in (scores.source, scores.prefix, scores.start)):
            remedy = "check the weights, or compute in float32"
            raise InputError("model", None, f"{self.name} returned NaN or inf", remedy)
        return scores

    def soft_links(self, batch: Batch) -> Tensor:
        """The source scores [B, T, S] of a checked batch alone; methods that need no logits for them compute none."""
        return self.run(batch).source

    @classmethod
    def shares(cls, settings: Mapping[str, Any]) -> bool:
        """Whether it shares out a total with these settings; see `shares_total`."""
        return cls.shares_total

    @classmethod
    def settings(cls) -> dict[str, inspect.Parameter]:
        """Its settings: the arguments of its constructor except the model."""
        known = dict(inspect.signature(cls).parameters)
        known.pop("model")
        return known

    @classmethod
    def fits(cls, model: PreTrainedModel) -> bool:
        """Whether the method can explain a supported translator; most explain all of them."""
        return True

    @classmethod
    def models(cls) -> list[str]:
        """Classes of the models that it explains, with their subclasses; empty if it explains all encoder-decoders."""
        return []

    @property
    def signed(self) -> bool:
        """Whether scores can be negative, with these settings."""
        return False

    @abstractmethod
    def explain(self, batch: Batch) -> Scores:
        """Scores of a checked batch, with the model in evaluation mode."""
