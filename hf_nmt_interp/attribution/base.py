"""Base class of attribution methods: checked input, an unchanged model, scores of known shape.

Definitions: docs/methods.md, Attribution result.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.decoding.batch import Batch, evaluating, make_batch
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import any_parts, check_devices


@dataclass
class Scores:
    """Contributions of every token to every step of a batch; padding is 0.

    Attributes:
        source: [B, T, S] contributions of the source tokens.
        prefix: [B, T, T] contributions of the target tokens before the step.
        start: [B, T] contributions of the decoder start token.
        log_probs: [B, T] log-probabilities of the labels, in nats.
        conservation_gap: [B] largest difference over the steps between the total and its expected value, for methods
            that conserve one: 1 for LRP, including the relevance that biases absorb under some rules; the score minus
            that of the baseline for integrated gradients.
        chosen: [B, T] whether the labels are the model's first choices, if the method computes it.
    """

    source: Tensor
    prefix: Tensor
    start: Tensor
    log_probs: Tensor
    conservation_gap: Tensor | None = None
    chosen: Tensor | None = None

    @classmethod
    def from_inputs(cls, source: Tensor, decoder: Tensor, log_probs: Tensor, **more) -> "Scores":
        """Create scores from those of the decoder's inputs [B, T, T], the first of which is the start token."""
        prefix = torch.zeros_like(decoder)
        prefix[..., :-1] = decoder[..., 1:]
        return cls(source, prefix, decoder[..., 0].contiguous(), log_probs, **more)

    @classmethod
    def join(cls, parts: Sequence["Scores"], how: Callable[[list[Tensor]], Tensor] = torch.cat) -> "Scores":
        """Scores of the sentences of several batches that are padded to the same lengths, in the order of `how`."""
        found: dict[str, Any] = {}
        for name, first in vars(parts[0]).items():
            found[name] = None if first is None else how([getattr(part, name) for part in parts])
        return cls(**found)


@contextmanager
def naming_dtypes(model: PreTrainedModel) -> Iterator[None]:
    """Context in which an operation that fails because weights have different dtypes raises an error that says so."""
    try:
        yield
    except RuntimeError as error:
        kinds = {str(weight.dtype) for weight in model.parameters()}
        if len(kinds) < 2 or "dtype" not in str(error):
            raise
        problem = f"its weights have different dtypes, {' and '.join(sorted(kinds))}"
        raise InputError("model", None, problem, "convert it, e.g. with model.float()") from error


class AttributionMethod(ABC):
    """An attribution method: called on a batch, it returns `Scores`.

    To add one: subclass, set `name`, write `explain`, and add the class to `METHODS`. The attributes describe its
    capabilities to the rest of the library.

    Attributes:
        name: the name that users select it by.
        shares_total: whether a total is divided among source, prefix and start at each step, so the source share is
            meaningful.
        word_settings: settings to explain the words of a given target, if the defaults explain other words.
        contrasts: whether it explains a score of the label, which can be compared with that of another label.
        gap: what a result's conservation gap is, for readers.
        aligns_online: whether the scores of a token are known while `generate()` runs; the method then has `cross`,
            `shifted` and `weights`, like `AttentionWeights`.
        memory: set by methods with `max_memory`: batches are explained in parts that fit.
    """

    name: ClassVar[str]
    shares_total: ClassVar[bool] = False
    word_settings: ClassVar[Mapping[str, Any]] = {}
    contrasts: ClassVar[bool] = False
    gap: ClassVar[str] = "relevance lost or made up"
    aligns_online: ClassVar[bool] = False
    memory: Memory | None = None

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.parts = any_parts(model)
        check_devices(model)
        default = torch.get_default_device()
        if default.type not in ("cpu", model.device.type):  # new tensors would not be on the model's device
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
            decoder_input_ids: [B, T] input of the decoder; None for the family's shift of the labels.
            contrast: [B, T] other labels: where they differ, explains why the labels were chosen over them; -100 for
                no comparison. Other steps get scores of 0.
        """
        return self.run(make_batch(self.model, input_ids, labels, attention_mask, decoder_input_ids, contrast))

    def run(self, batch: Batch) -> Scores:
        """Explain all steps of a checked batch."""
        if batch.contrast is not None and not self.contrasts:
            problem = f"method {self.name!r} does not explain a score of the label, so there is nothing to compare"
            raise InputError("contrast", None, problem, "use one that does, e.g. lrp or saliency")
        with naming_dtypes(self.model), evaluating(self.model):
            parts = self.memory.parts(batch) if self.memory else [batch]
            scores = Scores.join([self.explain(part) for part in parts])
        self.check_finite(scores.source, scores.prefix, scores.start)
        return scores

    def check_finite(self, *found: Tensor) -> None:
        """Raise if a score is NaN or inf."""
        if not all(values.isfinite().all() for values in found):
            remedy = "check the weights, or compute in float32"
            raise InputError("model", None, f"{self.name} returned NaN or inf", remedy)

    def soft_links(self, batch: Batch) -> Tensor:
        """Only the source scores [B, T, S] of a checked batch; logits are skipped if the method does not need them."""
        return self.run(batch).source

    @classmethod
    def shares(cls, settings: Mapping[str, Any]) -> bool:
        """Whether it divides a total with these settings; see `shares_total`."""
        return cls.shares_total

    @classmethod
    def settings(cls) -> dict[str, inspect.Parameter]:
        """The settings: the arguments of the constructor except the model."""
        known = dict(inspect.signature(cls).parameters)
        known.pop("model")
        return known

    @classmethod
    def fits(cls, model: PreTrainedModel) -> bool:
        """Whether the method can explain a supported translator; most explain all of them."""
        return True

    @classmethod
    def models(cls) -> list[str]:
        """Classes of models that it explains, including subclasses; empty if it explains all encoder-decoders."""
        return []

    @property
    def signed(self) -> bool:
        """Whether scores can be negative, with these settings."""
        return False

    @abstractmethod
    def explain(self, batch: Batch) -> Scores:
        """Scores of a checked batch, with the model in evaluation mode."""
