"""What every attribution method has in common: checked input, an untouched model, scores of known shape."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.decoding.force import decoder_inputs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import parts, positions


@dataclass
class Scores:
    """Contributions of every token to every step of a batch; padding is 0.

    Attributes:
        source: [B, T, S] of the source tokens.
        prefix: [B, T, T] of the target tokens before the step.
        start: [B, T] of the decoder start token.
        log_probs: [B, T] of the labels, in nats.
        conservation_gap: [B] largest |1 - total| over the steps, for methods that conserve a total of 1.
    """

    source: Tensor
    prefix: Tensor
    start: Tensor
    log_probs: Tensor
    conservation_gap: Tensor | None = None

    @classmethod
    def from_inputs(cls, source: Tensor, decoder: Tensor, log_probs: Tensor, **more) -> "Scores":
        """From scores of the decoder's inputs [B, T, T], whose first is the start token."""
        prefix = torch.zeros_like(decoder)
        prefix[..., :-1] = decoder[..., 1:]
        return cls(source, prefix, decoder[..., 0].contiguous(), log_probs, **more)


@dataclass
class Batch:
    """A padded batch with everything a forward pass needs."""

    input_ids: Tensor  # [B, S]
    attention_mask: Tensor  # [B, S]
    labels: Tensor  # [B, T], -100 is padding
    decoder_input_ids: Tensor  # [B, T]

    @property
    def source_lengths(self) -> list[int]:
        return self.attention_mask.sum(-1).tolist()

    @property
    def target_lengths(self) -> list[int]:
        return self.labels.ne(-100).sum(-1).tolist()

    def inputs(self) -> dict[str, Any]:
        """Arguments of a forward pass that returns the logits of all steps."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.attention_mask,
            "decoder_input_ids": self.decoder_input_ids,
            "use_cache": False,
        }


def make_batch(
    model: PreTrainedModel,
    input_ids: Tensor,
    labels: Tensor,
    attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None,
) -> Batch:
    """Check the tensors of a batch; where the decoder's input is not given, shift the labels as the family does."""
    _check_tensor("input_ids", input_ids, model)
    _check_tensor("labels", labels, model)
    if len(labels) != len(input_ids):
        raise InputError(f"labels: {len(labels)} rows, but input_ids has {len(input_ids)}; one each is needed")
    if attention_mask is not None:
        _check_tensor("attention_mask", attention_mask, model, (*_WHOLE, torch.bool), input_ids.shape)
    if decoder_input_ids is not None:
        _check_tensor("decoder_input_ids", decoder_input_ids, model, size=labels.shape)
    mask = torch.ones_like(input_ids) if attention_mask is None else (attention_mask != 0).long()
    for name, kept in {"attention_mask": mask.bool(), "labels": labels != -100}.items():
        lengths = kept.sum(-1, keepdim=True)
        if not torch.equal(kept, torch.arange(kept.shape[1], device=kept.device) < lengths):
            raise InputError(f"{name}: padding must stand at the end of a row (pad with padding_side='right')")
        if (lengths == 0).any():
            raise InputError(f"{name}: row {int((lengths == 0).nonzero()[0, 0])} has no tokens; leave it out")
    check_ids("input_ids", input_ids, model.get_encoder())
    check_ids("labels", labels.masked_fill(labels == -100, 0), model.get_decoder())
    shifted = decoder_inputs(model, labels) if decoder_input_ids is None else decoder_input_ids
    check_ids("decoder_input_ids", shifted, model.get_decoder())
    return Batch(input_ids, mask, labels, shifted)


_WHOLE = torch.int64, torch.int32


def _check_tensor(
    name: str, ids: Any, model: PreTrainedModel, dtypes: Sequence[torch.dtype] = _WHOLE, size: Sequence[int] = ()
) -> None:
    """Refuse what is no tensor [batch, length] of whole numbers on the model's device, or not of the size needed."""
    if not isinstance(ids, Tensor):
        raise InputError(f"{name}: a tensor [batch, length] is needed, got {type(ids).__name__}; see torch.tensor")
    if ids.ndim != 2 or ids.dtype not in dtypes:
        raise InputError(
            f"{name}: whole numbers of shape [batch, length] are needed, got {ids.dtype} of {list(ids.shape)}"
        )
    if not len(ids):
        raise InputError(f"{name}: a batch of no rows; leave it out")
    if size and ids.shape != tuple(size):
        raise InputError(f"{name}: shape {list(ids.shape)}; {list(size)} is needed beside the others of the batch")
    if ids.device != model.device:
        raise InputError(f"{name}: on {ids.device}, the model is on {model.device}; move it with .to(model.device)")


def check_ids(name: str, ids: Tensor, stack: Any) -> None:
    """Refuse ids that an encoder or decoder has no embedding for, and more of them than it has positions."""
    size = stack.get_input_embeddings().num_embeddings
    if (wrong := ids[(ids < 0) | (ids >= size)]).numel():
        raise InputError(f"{name}: {wrong[0]} is not among the model's {size} tokens; use the model's own tokenizer")
    limit = positions(stack)
    if limit is not None and ids.shape[-1] > limit:
        raise InputError(f"{name}: {ids.shape[-1]} tokens are more than the model's {limit} positions; cut them")


_SWITCHING = threading.Lock()
_EVALUATED: dict[torch.nn.Module, tuple[int, list[bool]]] = {}  # number of contexts, modes before the first one


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without autocast inside, the mode of every module as before outside.

    Threads that share a model may overlap.
    """
    with _SWITCHING:
        count, modes = _EVALUATED.get(model, (0, [module.training for module in model.modules()]))
        _EVALUATED[model] = count + 1, modes
        if any(modes) and not count:
            model.eval()
    try:
        with torch.autocast(next(model.parameters()).device.type, enabled=False):
            yield
    finally:
        with _SWITCHING:
            count, modes = _EVALUATED.pop(model)
            if count > 1:
                _EVALUATED[model] = count - 1, modes
            else:
                for module, training in zip(model.modules(), modes, strict=True):
                    module.training = training


def run_model(model: Any, inputs: dict[str, Any]) -> Any:
    """A forward pass in the model's own precision, also if accelerate wrapped the model for mixed precision."""
    if not hasattr(model, "_original_forward"):
        return model(**inputs)
    if model._forward_hooks or model._forward_pre_hooks:
        raise InputError(
            "model: it has hooks besides accelerate's mixed precision; explain what "
            "accelerator.unwrap_model(model, keep_fp32_wrapper=False) gives"
        )
    return model._original_forward(**inputs)


class AttributionMethod(ABC):
    """An attribution method: called on a batch, it returns `Scores`.

    To add one: subclass, set `name`, write `explain`, and add the class to `METHODS`.
    """

    name: ClassVar[str]

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.parts = parts(model)
        if empty := next((name for name, weight in model.named_parameters() if weight.is_meta), None):
            raise InputError(
                f"model: {empty} is on the meta device and holds no numbers; load the weights without offloading"
            )

    def __call__(
        self,
        input_ids: Tensor,
        labels: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
    ) -> Scores:
        """Explain all steps of a batch.

        Args:
            input_ids: [B, S] source tokens, padded on the right.
            labels: [B, T] target tokens without the start token, -100 is padding.
            attention_mask: [B, S], 0 for padding.
            decoder_input_ids: [B, T] what the decoder reads; None for the family's own shift of the labels.
        """
        batch = make_batch(self.model, input_ids, labels, attention_mask, decoder_input_ids)
        with evaluating(self.model):
            scores = self.explain(batch)
        if not all(values.isfinite().all() for values in (scores.source, scores.prefix, scores.start)):
            raise InputError(f"model: {self.name} gives NaN or inf; check the weights, or compute in float32")
        return scores

    @classmethod
    def fits(cls, model: PreTrainedModel) -> bool:
        """Whether the method can explain a supported translator; most explain all of them."""
        return True

    @abstractmethod
    def explain(self, batch: Batch) -> Scores:
        """Scores of a checked batch, with the model in evaluation mode."""


def label_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-probabilities [B, T] of the labels, 0 for padding."""
    kept = labels != -100
    total = logits.logsumexp(-1)
    if not total[kept].isfinite().all():
        raise InputError("model: its logits are not finite; check the weights and the input")
    picked = logits.gather(-1, labels.long().clamp(min=0)[..., None])[..., 0] - total
    return torch.where(kept, picked, 0)
