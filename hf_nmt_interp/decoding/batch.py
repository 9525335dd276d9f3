"""Sentence pairs as ids and as padded tensors, and the forward pass over them."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import capacity, check_devices


@dataclass(frozen=True)
class Translation:
    """One sentence pair as ids, without padding."""

    source_ids: list[int]  # with EOS and language tokens
    target_ids: list[int]  # the labels: without the start token, with EOS
    start_id: int | None = None  # first token of the decoder's input; None for the family's shift of the labels

    @property
    def size(self) -> int:
        """Length of the longer side, for sorting."""
        return max(len(self.source_ids), len(self.target_ids))


@dataclass
class Batch:
    """A padded batch with everything that a forward pass and attribution methods need.

    `contrast` contains other labels for the same steps, -100 where nothing is compared; `source_words` and
    `target_words` contain the index of each token's word, -1 for special tokens and padding.
    """

    input_ids: Tensor  # [B, S]
    attention_mask: Tensor  # [B, S]
    labels: Tensor  # [B, T], -100 is padding
    decoder_input_ids: Tensor  # [B, T]
    contrast: Tensor | None = None  # [B, T]
    source_words: Tensor | None = None  # [B, S]
    target_words: Tensor | None = None  # [B, T]

    @property
    def source_lengths(self) -> list[int]:
        return self.attention_mask.sum(-1).tolist()

    @property
    def target_lengths(self) -> list[int]:
        return self.labels.ne(-100).sum(-1).tolist()

    def inputs(self) -> dict[str, Any]:
        """Arguments of a forward pass that returns the logits of all steps."""
        names = "input_ids", "attention_mask", "decoder_input_ids"
        return {name: getattr(self, name) for name in names} | {"use_cache": False}

    def take(self, rows: Tensor | slice) -> "Batch":
        """Some rows, as tensors that autograd accepts even if they were made in inference mode."""
        with torch.inference_mode(False):
            given = {name: value for name, value in vars(self).items() if value is not None}
            return Batch(**{name: value[rows].clone() for name, value in given.items()})

    @property
    def compared(self) -> Tensor:
        """[B, T], the steps to explain: all except padding, or those at which the contrast differs."""
        real = self.labels != -100
        return real if self.contrast is None else real & (self.contrast != -100) & (self.contrast != self.labels)


def collate(
    translations: Sequence[Translation], pad_id: int | None, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """Pad translations on the right: input_ids and attention_mask [B, S], labels [B, T] (padding -100).

    If the start tokens are known, also decoder_input_ids [B, T]. For a model without a padding token (`pad_id` None),
    the padding is 0, which is never read.

    >>> collate([Translation([5, 0], [7, 8, 0]), Translation([0], [0])], pad_id=9)["labels"]
    tensor([[   7,    8,    0],
            [   0, -100, -100]])
    """
    pad_id = pad_id or 0
    batch = {
        "input_ids": pad([t.source_ids for t in translations], pad_id, device=device),
        "attention_mask": pad([[1] * len(t.source_ids) for t in translations], 0, device=device),
        "labels": pad([t.target_ids for t in translations], -100, device=device),
    }
    if all(t.start_id is not None for t in translations):
        rows = [[t.start_id or 0, *t.target_ids[:-1]] for t in translations]
        batch["decoder_input_ids"] = pad(rows, pad_id, device=device)
    return batch


def pad(
    rows: Sequence[list[int]], value: int, like: Tensor | None = None, device: torch.device | str = "cpu"
) -> Tensor:
    """Rows padded on the right to the longest, or to the width of a tensor, on its device."""
    width, device = (max(map(len, rows)), device) if like is None else (like.shape[1], like.device)
    return torch.tensor([row + [value] * (width - len(row)) for row in rows], device=device)


def decoder_inputs(model: Any, labels: Tensor) -> Tensor:
    """The decoder's input for given labels [B, T] (-100 is padding): the family's own shift to the right.

    M2M100 has no public method for this; its forward pass shifts with the config's start token, as here.
    """
    start_id = getattr(model.config, "decoder_start_token_id", None)
    if start_id is not None and hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(labels=labels.clone())  # FSMT's method modifies them
    start_id = model.generation_config.decoder_start_token_id if start_id is None else start_id
    if start_id is None:
        problem, remedy = "its config has no decoder start token", "set config.decoder_start_token_id"
        raise InputError("model", None, problem, remedy)
    start = torch.full_like(labels[:, :1], start_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == -100, model.config.pad_token_id)


def similar_sizes(sizes: Sequence[int], batch_size: int) -> list[list[int]]:
    """Indices of batches of similar size, longest first.

    >>> similar_sizes([3, 9, 4], batch_size=2)
    [[1, 2], [0]]
    """
    if not isinstance(batch_size, Integral) or batch_size < 1:
        raise InputError("batch_size", batch_size, "must be a positive integer", "the default is 16")
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    return [order[start : start + batch_size] for start in range(0, len(order), int(batch_size))]


def batch_of(model: Any, translations: Sequence[Translation]) -> Batch:
    """The padded batch of translations whose ids have been checked."""
    tensors = collate(translations, model.config.pad_token_id, model.device)
    if "decoder_input_ids" not in tensors:
        tensors["decoder_input_ids"] = decoder_inputs(model, tensors["labels"])
    check_ids("decoder_input_ids", tensors["decoder_input_ids"][:, :1], model, "target")  # the start tokens
    return Batch(**tensors)


def make_batch(
    model: PreTrainedModel,
    input_ids: Tensor,
    labels: Tensor,
    attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None,
    contrast: Tensor | None = None,
) -> Batch:
    """Check the caller's tensors; without `decoder_input_ids`, labels are shifted as in the model's family."""
    _check_tensor("input_ids", input_ids, model)
    _check_tensor("labels", labels, model)
    if len(labels) != len(input_ids):
        raise InputError("labels", len(labels), f"rows, but input_ids has {len(input_ids)}", "give one each")
    if attention_mask is not None:
        _check_tensor("attention_mask", attention_mask, model, (*_WHOLE, torch.bool), input_ids.shape)
    if decoder_input_ids is not None:
        _check_tensor("decoder_input_ids", decoder_input_ids, model, size=labels.shape)
    if contrast is not None:
        _check_tensor("contrast", contrast, model, size=labels.shape)
        check_ids("contrast", contrast.masked_fill(contrast == -100, 0), model, "target")
    mask = torch.ones_like(input_ids) if attention_mask is None else (attention_mask != 0).long()
    for name, kept in {"attention_mask": mask.bool(), "labels": labels != -100}.items():
        check_right_padding(name, kept)
    check_ids("input_ids", input_ids, model, "source")
    check_ids("labels", labels.masked_fill(labels == -100, 0), model, "target")
    shifted = decoder_inputs(model, labels) if decoder_input_ids is None else decoder_input_ids
    check_ids("decoder_input_ids", shifted, model, "target")
    return Batch(input_ids, mask, labels, shifted, contrast)


_WHOLE = torch.int64, torch.int32


def _check_tensor(
    name: str, ids: Any, model: PreTrainedModel, dtypes: Sequence[torch.dtype] = _WHOLE, size: Sequence[int] = ()
) -> None:
    """Raise unless `ids` is an integer tensor [batch, length] of the right size on the model's device."""
    if not isinstance(ids, Tensor):
        problem = f"expected a tensor [batch, length], got {type(ids).__name__}"
        raise InputError(name, None, problem, "see torch.tensor")
    if ids.ndim != 2 or ids.dtype not in dtypes:
        problem = f"expected integers of shape [batch, length], got {ids.dtype} of {list(ids.shape)}"
        raise InputError(name, None, problem, "give token ids")
    if not len(ids):
        raise InputError(name, None, "the batch is empty", "leave it out")
    if size and ids.shape != tuple(size):
        problem = f"shape {list(ids.shape)}, but {list(size)} is needed to match the rest of the batch"
        raise InputError(name, None, problem, "pad them to the same length")
    if ids.device != model.device:
        remedy = "move it with .to(model.device)"
        raise InputError(name, None, f"on {ids.device}, but the model is on {model.device}", remedy)


def check_right_padding(name: str, kept: Tensor) -> list[int]:
    """Lengths of rows [B, L] whose padding, where `kept` is False, is at the end; raises for other rows."""
    lengths = kept.sum(-1, keepdim=True)
    if (lengths == 0).any():
        raise InputError(name, None, "has no tokens", "leave it out", int((lengths == 0).nonzero()[0, 0]))
    if not torch.equal(kept, torch.arange(kept.shape[1], device=kept.device) < lengths):
        raise InputError(name, None, "padding must be at the end of a row", "pad with padding_side='right'")
    return lengths[:, 0].tolist()


def check_ids(
    name: str, ids: Tensor, model: Any, side: str, row: int | None = None, longest: int | None = None
) -> None:
    """Raise if a side ("source" or "target") of a model has no embeddings or positions for ids [..., L].

    For a model without positions, `longest` is the limit; `name` and `row` are for messages.
    """
    tokens, limit = capacity(model, side)
    if (most := limit or longest) and (size := ids.shape[-1]) > most:
        problem = f"the model has {most} positions" if limit else f"at most {most} are supported"
        raise InputError(name, size, f"tokens, but {problem}", "split the sentence", row)
    if (wrong := ids[(ids < 0) | (ids >= tokens)]).numel():
        problem = f"is not among the model's {tokens} tokens"
        raise InputError(name, int(wrong[0]), problem, "use the model's own tokenizer", row)


_SWITCHING = threading.Lock()
_STANCES: list[Any] = []  # setting for compiled code, active while any model is in a context
# number of contexts, and the modes before the first one
_EVALUATED: dict[torch.nn.Module, tuple[int, list[tuple[torch.nn.Module, bool]]]] = {}


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Context with evaluation mode, without autocast and compiled code; restores the mode of every module.

    Compiled code would skip hooks that are added later. Threads that share a model may overlap.
    """
    check_devices(model)
    with _SWITCHING:
        if "torch._dynamo" in sys.modules and not _EVALUATED:
            _STANCES.append(torch.compiler.set_stance("force_eager"))
            _STANCES[-1].__enter__()
        count, modes = _EVALUATED.get(model, (0, [(module, module.training) for module in model.modules()]))
        _EVALUATED[model] = count + 1, modes
        if any(training for _, training in modes) and not count:
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
                for module, training in modes:  # BigBird replaces some of its modules
                    module.training = training
            if not _EVALUATED and _STANCES:
                _STANCES.pop().__exit__(None, None, None)


def run_model(model: Any, inputs: dict[str, Any]) -> Any:
    """A forward pass in the model's own precision, even if accelerate wrapped the model for mixed precision."""
    if not hasattr(model, "_original_forward"):
        return model(**inputs)
    if model._forward_hooks or model._forward_pre_hooks:
        remedy = "pass accelerator.unwrap_model(model, keep_fp32_wrapper=False)"
        raise InputError("model", None, "it has hooks besides accelerate's mixed precision", remedy)
    return model._original_forward(**inputs)


def first_choices(logits: Tensor, batch: Batch) -> Tensor:
    """Whether each label [B, T] has the largest logit."""
    return logits.argmax(-1) == batch.labels


def label_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-probabilities [B, T] of the labels, 0 for padding; other words may be banned by logits of -inf."""
    kept = labels != -100
    picked = logits.gather(-1, labels.long().clamp(min=0)[..., None])[..., 0] - logits.logsumexp(-1)
    if not picked[kept].isfinite().all():
        raise InputError("model", None, "its logits are not finite", "check the weights and the input")
    return torch.where(kept, picked, 0)
