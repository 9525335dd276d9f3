"""What `generate()` was given and what it returned, caught while it runs."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import LogitsProcessor

from hf_nmt_interp.decoding.translation import Translation
from hf_nmt_interp.errors import InputError


class Watcher(Protocol):
    """What is told of every `generate()` call."""

    def start(self, sources: list[list[int]], setting: Callable[[str], set[int]]) -> list[LogitsProcessor]:
        """Before: the source ids, the ids or numbers that a setting's name stands for; returns processors to add."""

    def end(self, translations: list[Translation]) -> None:
        """After: what was returned."""


_RECORDED = "model: its generate() is being recorded already; leave the other context first"


@contextmanager
def record_generation(model: Any, watcher: Watcher | None = None) -> Iterator[list[Translation]]:
    """Context that collects one `Translation` per sequence returned by any `model.generate()` call inside.

    Greedy, beam search and sampling, several returned sequences, padded batches, one call or many. Nothing is left on
    the model afterwards.
    """
    translations: list[Translation] = []
    generate = plain_generate(model)

    def recorded(inputs: Tensor | None = None, generation_config: Any = None, *args, **kwargs) -> Any:
        call = {"input_ids": inputs} | kwargs if inputs is not None else kwargs
        sources = _sources(model, generation_config, call)
        if watcher is not None:
            added = watcher.start(sources, lambda name: _setting(name, model, generation_config, call))
            kwargs["logits_processor"] = [*(kwargs.get("logits_processor") or []), *added]
        output = generate(inputs, generation_config, *args, **kwargs)
        found = _translations(output, sources, model, generation_config, call)
        translations.extend(found)
        if watcher is not None:
            watcher.end(found)
        return output

    if vars(model).setdefault("generate", recorded) is not recorded:  # in one step: another thread may be quicker
        raise InputError(_RECORDED)
    try:
        yield translations
    finally:
        del model.generate


def plain_generate(model: Any) -> Callable[..., Any]:
    """`model.generate` itself: no context catches its calls, also none that is entered later. Raises inside one."""
    generate = model.generate
    if not inspect.ismethod(generate):  # as `recorded` is none
        raise InputError(_RECORDED)
    return generate


def translations_of(generate: Callable[..., Any], model: Any, **call: Any) -> list[Translation]:
    """One `Translation` per sequence of one call of `plain_generate(model)`; threads may share the model."""
    config = call.get("generation_config")
    sources = _sources(model, config, call)
    call["logits_processor"] = [*(call.get("logits_processor") or []), _Finite()]
    return _translations(generate(**call), sources, model, config, call)


class _Finite(LogitsProcessor):
    """Refuses scores of which the best cannot be told, where a search would take any; -inf is for banned words."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if not (scores < torch.inf).all():
            raise InputError("model: its logits are not finite; check the weights and the input")
        return scores


def _translations(
    output: Any, sources: list[list[int]], model: Any, config: Any, call: dict[str, Any]
) -> list[Translation]:
    """What `generate()` returned, as ids."""
    sequences = output if isinstance(output, Tensor) else output.sequences
    each = len(sequences) // len(sources)  # num_return_sequences
    return [
        Translation(sources[i // each], target[: _end(target, model, config, call)], start)
        for i, (start, *target) in enumerate(sequences.tolist())
    ]


def _setting(name: str, model: Any, config: Any, call: dict[str, Any]) -> set[int]:
    """Ids a setting names: of this call, else of its configuration, else the model's."""
    places = (getattr(place, name, None) for place in (config, model.generation_config, model.config))
    found: Any = next((value for value in (call.get(name), *places) if value is not None), [])
    return set(torch.as_tensor(found).flatten().tolist())


def _sources(model: Any, config: Any, call: dict[str, Any]) -> list[list[int]]:
    """Source ids of each row without padding."""
    ids, mask = call.get("input_ids"), call.get("attention_mask")
    if ids is None:
        raise InputError("generate(): give input_ids; from encoder_outputs alone the source is not known")
    if mask is None:  # as generate() does it
        pad = _setting("pad_token_id", model, config, call) - _setting("eos_token_id", model, config, call)
        mask = torch.isin(ids, ids.new_tensor(list(pad)), invert=True)
    if mask.shape != ids.shape:
        raise InputError(f"attention_mask: shape {list(mask.shape)}; {list(ids.shape)} is needed, that of input_ids")
    lengths = mask.bool().sum(-1, keepdim=True)
    if (lengths == 0).any():
        raise InputError(f"attention_mask: row {int((lengths == 0).nonzero()[0, 0])} has no tokens; leave it out")
    if not torch.equal(mask.bool(), torch.arange(ids.shape[1], device=ids.device) < lengths):
        raise InputError("attention_mask: padding must stand at the end of a row (pad with padding_side='right')")
    return [row[:length] for row, (length,) in zip(ids.tolist(), lengths.tolist(), strict=True)]


def _end(target: list[int], model: Any, config: Any, call: dict[str, Any]) -> int:
    """Length of a target with its EOS."""
    stops = _setting("eos_token_id", model, config, call)
    if (end := next((j + 1 for j, token in enumerate(target) if token in stops), None)) is not None:
        return end
    end = len(target)
    if call.get("stopping_criteria") or call.get("stop_strings"):  # they end a row without EOS, padding follows
        padding = _setting("pad_token_id", model, config, call)
        while end and target[end - 1] in padding:
            end -= 1
    return end
