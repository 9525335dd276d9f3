"""Records the inputs and outputs of `generate()` while it runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor

from hf_nmt_interp.decoding.batch import Translation, check_right_padding, collate, evaluating
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import capacity

Setting = Callable[[str], set[Any]]  # from the name of a setting to its ids, numbers or texts in a call


class Watcher(Protocol):
    """Watches every `generate()` call."""

    def start(self, sources: list[list[int]], setting: Setting) -> list[LogitsProcessor]:
        """Called before, with the source ids and the call's settings; returns processors to add."""

    def end(self, translations: list[Translation]) -> None:
        """Called after, with the returned value."""


_RECORDED = "model", None, "its generate() is already being recorded", "leave the other context first"
_SOURCE = "inputs", "input_ids", "attention_mask", "inputs_embeds", "encoder_outputs"  # arguments that are the source
_LOCK = threading.Lock()
_LONGEST = 100_000  # tokens of a translation
_RECORDERS: dict[int, Callable[..., Any]] = {}  # recorders of the calls of a model, by its id


@contextmanager
def record_generation(model: Any, watcher: Watcher | None = None) -> Iterator[list[Translation]]:
    """Context that collects one `Translation` per sequence returned by any `model.generate()` call inside.

    Supports greedy search, beam search and sampling, several returned sequences, padded batches, one call or many. The
    model is left unchanged.
    """
    translations: list[Translation] = []
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    generate = plain_generate(model)

    def recorded(inputs: Tensor | None = None, generation_config: Any = None, *args, **kwargs) -> Any:
        call = kwargs | ({"generation_config": generation_config} if generation_config is not None else {})
        call |= {"input_ids": inputs} if inputs is not None else {}
        setting = partial(_setting, model, call)
        sources = _sources(setting, call)
        _check_memory(model, call)
        if watcher is not None:
            added = watcher.start(sources, setting)
            kwargs["logits_processor"] = [*(kwargs.get("logits_processor") or []), *added]
        output = generate(inputs, generation_config, *args, **kwargs)
        found = _translations(output, sources, setting, call)
        translations.extend(found)
        if watcher is not None:
            watcher.end(found)
        return output

    with _caught(model, recorded):
        yield translations


@contextmanager
def _caught(model: Any, recorded: Callable[..., Any]) -> Iterator[None]:
    """Inside, calls of a model's `generate()` go to `recorded`.

    The class is patched, not the model: attributes of a model would be copied and pickled with it.
    """
    owner: Any = next(base for base in type(model).__mro__ if "generate" in vars(base))
    with _LOCK:
        if id(model) in _RECORDERS:
            raise InputError(*_RECORDED)
        _RECORDERS[id(model)] = recorded
        if _is_plain(owner.generate):
            owner.generate = _catching(owner.generate)
        catching = owner.generate
        catching.models.add(id(model))
    try:
        yield
    finally:
        with _LOCK:
            del _RECORDERS[id(model)]
            catching.models.remove(id(model))
            if not catching.models:
                owner.generate = catching.plain


def _is_plain(generate: Callable[..., Any]) -> bool:
    return not hasattr(generate, "plain")


def _catching(plain: Any) -> Any:
    """A `generate()` that passes calls to `_RECORDERS`, if there is one for the model."""

    @wraps(plain)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        # a class may call its base class, which may be recorded for other models
        recorder = _RECORDERS.get(id(self)) if id(self) in generate.models else None  # type: ignore[attr-defined]
        return (recorder or partial(plain, self))(*args, **kwargs)

    generate.plain, generate.models = plain, set()  # type: ignore[attr-defined]
    return generate


def plain_generate(model: Any) -> Callable[..., Any]:
    """`model.generate` itself, whose calls no context records. Raises inside such a context."""
    model = getattr(model, "_orig_mod", model)
    if id(model) in _RECORDERS:
        raise InputError(*_RECORDED)
    if "generate" in vars(model):
        problem = "its generate() was overridden"
        raise InputError("model", None, problem, "remove it with `del model.generate`")
    found = type(model).generate
    return MethodType(found if _is_plain(found) else found.plain, model)


def translate_batch(
    generate: Callable[..., Any], model: Any, sources: list[list[int]], **options: Any
) -> list[Translation]:
    """Translate checked ids without padding in one call of `plain_generate(model)`; threads may share the model."""
    if given := [name for name in _SOURCE if name in options]:
        raise InputError("generate", given[0], "is made from the sources", "leave it out")
    config = options.get("generation_config")
    if not isinstance(config, GenerationConfig | None):
        raise InputError("generation_config", config, "is not a GenerationConfig", "see transformers.GenerationConfig")
    if {options.get("num_return_sequences"), getattr(config, "num_return_sequences", None)} - {None, 1}:
        problem = "must be 1: one translation per source"
        raise InputError("num_return_sequences", None, problem, "use explain_generation for more")
    if type(seed := options.pop("seed", 0)) is not int:
        raise InputError("generate", seed, "is not a valid seed", "give an integer")
    padded = collate([Translation(ids, [0]) for ids in sources], model.config.pad_token_id, model.device)
    call = {name: padded[name] for name in ("input_ids", "attention_mask")} | options
    call["num_return_sequences"] = 1  # the model's own configuration may have more
    setting = partial(_setting, model, call)
    if wrong := [n for n in setting("num_beams") if not isinstance(n, int) or n < 0]:  # transformers rejects 0
        raise InputError("num_beams", wrong[0], "is not a number of beams", "give 1 or more")
    for name in ("max_length", "max_new_tokens"):
        if wrong := [n for n in setting(name) if isinstance(n, int) and n > _LONGEST]:
            raise InputError("generate", wrong[0], f"tokens ({name}) exceed the maximum of {_LONGEST:,}", "give fewer")
    call["logits_processor"] = [*(call.get("logits_processor") or []), _Finite()]
    try:
        with evaluating(model), _seeded(model, seed) if True in setting("do_sample") else nullcontext():
            output = generate(**call)
    except IndexError as error:  # the sources have been checked
        longest = max([*setting("max_length"), *(n + 1 for n in setting("max_new_tokens"))], default=None)
        limit = capacity(model, "target")[1]
        if limit is None or (longest is not None and longest <= limit):
            raise InputError("model", None, f"{type(model).__name__} fails in generate() ({error})") from error
        problem = "a translation grew longer than the model's positions"
        raise InputError("generate", None, problem, "give a smaller max_new_tokens") from error
    except InputError:
        raise
    except (ValueError, ZeroDivisionError) as error:  # arguments that transformers rejects, e.g. no beams
        raise InputError("generate", None, str(error)) from error
    return _translations(output, sources, setting, call)


@contextmanager
def _seeded(model: Any, seed: int) -> Iterator[None]:
    """Context in which sampling starts from a seed; the random state is restored afterwards."""
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


class _Finite(LogitsProcessor):
    """Raises for NaN or inf scores, where a search would pick any word; -inf is allowed for banned words."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if not (scores < torch.inf).all():
            raise InputError("model", None, "its logits are not finite", "check the weights and the input")
        return scores


def _translations(output: Any, sources: list[list[int]], setting: Setting, call: dict[str, Any]) -> list[Translation]:
    """The ids returned by `generate()`."""
    sequences = output if isinstance(output, Tensor) else output.sequences
    each = len(sequences) // len(sources)  # num_return_sequences
    return [
        Translation(sources[i // each], target[: _end(target, setting, call)], start)
        for i, (start, *target) in enumerate(sequences.tolist())
    ]


def _setting(model: Any, call: dict[str, Any], name: str) -> set[Any]:
    """The ids, numbers or texts of a setting: from this call, or its configuration, or the model's."""
    configs = call.get("generation_config"), model.generation_config, model.config
    places = (getattr(place, name, None) for place in configs)
    found: Any = next((value for value in (call.get(name), *places) if value is not None), [])
    if isinstance(found, Tensor):
        found = found.flatten().tolist()
    return set(found) if isinstance(found, list | tuple | set) else {found}


def _check_memory(model: Any, call: dict[str, Any]) -> None:
    """Raise if encoder states were computed from a source other than the one to explain."""
    if (given := call.get("encoder_outputs")) is None:
        return
    with torch.no_grad(), evaluating(model):
        own = model.get_encoder()(call["input_ids"], attention_mask=call.get("attention_mask"))[0]
    if given[0].shape != own.shape or not torch.allclose(given[0], own, rtol=1e-2, atol=1e-2 * float(own.abs().max())):
        raise InputError("encoder_outputs", None, "were not computed from input_ids", "give input_ids alone")


def _sources(setting: Setting, call: dict[str, Any]) -> list[list[int]]:
    """Source ids of each row without padding."""
    ids, mask = call.get("input_ids"), call.get("attention_mask")
    if ids is None:
        raise InputError("generate()", None, "the source is not known from encoder_outputs alone", "give input_ids")
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
    if call.get("stopping_criteria") or setting("stop_strings"):  # they end a row without EOS, followed by padding
        while end and target[end - 1] in setting("pad_token_id"):
            end -= 1
    return end
