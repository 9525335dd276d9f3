"""What `generate()` was given and what it returned, caught while it runs."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import LogitsProcessor

from hf_nmt_interp.decoding.batch import Translation, check_right_padding, collate, evaluating
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import capacity

Setting = Callable[[str], set[int]]  # the ids or numbers that a setting's name stands for in a call


class Watcher(Protocol):
    """Watches every `generate()` call."""

    def start(self, sources: list[list[int]], setting: Setting) -> list[LogitsProcessor]:
        """Before: the source ids and the call's settings; returns processors to add."""

    def end(self, translations: list[Translation]) -> None:
        """After: what was returned."""


_RECORDED = "model", None, "its generate() is being recorded already", "leave the other context first"


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
        setting = partial(_setting, model, generation_config, call)
        sources = _sources(setting, call)
        if watcher is not None:
            added = watcher.start(sources, setting)
            kwargs["logits_processor"] = [*(kwargs.get("logits_processor") or []), *added]
        output = generate(inputs, generation_config, *args, **kwargs)
        found = _translations(output, sources, setting, call)
        translations.extend(found)
        if watcher is not None:
            watcher.end(found)
        return output

    if vars(model).setdefault("generate", recorded) is not recorded:  # in one step: another thread may be quicker
        raise InputError(*_RECORDED)
    try:
        yield translations
    finally:
        del model.generate


def plain_generate(model: Any) -> Callable[..., Any]:
    """`model.generate` itself: no context catches its calls, also none that is entered later. Raises inside one."""
    generate = model.generate
    if not inspect.ismethod(generate):  # as `recorded` is none
        raise InputError(*_RECORDED)
    return generate


def translate_batch(
    generate: Callable[..., Any], model: Any, sources: list[list[int]], **options: Any
) -> list[Translation]:
    """Translate checked ids without padding in one call of `plain_generate(model)`; threads may share the model."""
    if options.get("num_return_sequences", 1) != 1:
        problem = "must be 1: one translation per source"
        raise InputError("num_return_sequences", None, problem, "use explain_generation for more")
    padded = collate([Translation(ids, [0]) for ids in sources], model.config.pad_token_id, model.device)
    call = {name: padded[name] for name in ("input_ids", "attention_mask")} | options
    call["logits_processor"] = [*(call.get("logits_processor") or []), _Finite()]
    try:
        with evaluating(model):
            output = generate(**call)
    except IndexError as error:  # the sources have been checked
        setting = partial(_setting, model, call.get("generation_config"), call)
        longest = max([*setting("max_length"), *(n + 1 for n in setting("max_new_tokens"))], default=None)
        limit = capacity(model, "target")[1]
        if limit is None or (longest is not None and longest <= limit):
            raise InputError("model", None, f"{type(model).__name__} fails in generate() ({error})") from error
        problem = "a translation grew longer than the model's positions"
        raise InputError("generate", None, problem, "give a smaller max_new_tokens") from error
    except InputError:
        raise
    except (ValueError, ZeroDivisionError) as error:  # arguments that transformers does not take, e.g. no beams
        raise InputError("generate", None, str(error)) from error
    return _translations(output, sources, partial(_setting, model, call.get("generation_config"), call), call)


class _Finite(LogitsProcessor):
    """Refuses scores of which the best cannot be told, where a search would take any; -inf is for banned words."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if not (scores < torch.inf).all():
            raise InputError("model", None, "its logits are not finite", "check the weights and the input")
        return scores


def _translations(output: Any, sources: list[list[int]], setting: Setting, call: dict[str, Any]) -> list[Translation]:
    """What `generate()` returned, as ids."""
    sequences = output if isinstance(output, Tensor) else output.sequences
    each = len(sequences) // len(sources)  # num_return_sequences
    return [
        Translation(sources[i // each], target[: _end(target, setting, call)], start)
        for i, (start, *target) in enumerate(sequences.tolist())
    ]


def _setting(model: Any, config: Any, call: dict[str, Any], name: str) -> set[int]:
    """Ids a setting names: of this call, else of its configuration, else the model's."""
    places = (getattr(place, name, None) for place in (config, model.generation_config, model.config))
    found: Any = next((value for value in (call.get(name), *places) if value is not None), [])
    return set(torch.as_tensor(found).flatten().tolist())


def _sources(setting: Setting, call: dict[str, Any]) -> list[list[int]]:
    """Source ids of each row without padding."""
    ids, mask = call.get("input_ids"), call.get("attention_mask")
    if ids is None:
        raise InputError("generate()", None, "from encoder_outputs alone the source is not known", "give input_ids")
    if mask is None:  # as generate() does it
        pad = ids.new_tensor(list(setting("pad_token_id") - setting("eos_token_id")))
        mask = torch.isin(ids, pad, invert=True)
    if mask.shape != ids.shape:
        problem = f"shape {list(mask.shape)}, but input_ids has {list(ids.shape)}"
        raise InputError("attention_mask", None, problem, "give one of the same shape")
    lengths = check_right_padding("attention_mask", mask.bool())
    return [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]


def _end(target: list[int], setting: Setting, call: dict[str, Any]) -> int:
    """Length of a target with its EOS."""
    stops, end = setting("eos_token_id"), len(target)
    if stopped := [j + 1 for j, token in enumerate(target) if token in stops]:
        return stopped[0]
    if call.get("stopping_criteria") or call.get("stop_strings"):  # they end a row without EOS, padding follows
        while end and target[end - 1] in setting("pad_token_id"):
            end -= 1
    return end
