"""`load` for translators, and names accepted in place of models."""

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from hf_nmt_interp.decoding.languages import choose_languages, known_prefixes
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models.loading import load_model, load_tokenizer, quiet

Function = TypeVar("Function", bound=Callable[..., Any])
_DTYPES = "float32", "float64", "bfloat16", "float16"
_OPTIONS = "source_lang", "target_lang", "source_prefix", "dtype", "device"
_FORMER = {"target": "targets", "translation": "targets"}  # names of arguments


def load(
    name: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
    source_prefix: str | None = None,
    dtype: Any = None,
    device: Any = None,
) -> tuple[Any, Any]:
    """Load a translator and its tokenizer, as the command line does.

    Args:
        name: a folder, an id on the Hub, or a bundled translator such as `demo:en-de`.
        source_lang: code of the source language, for multilingual models, as the tokenizer writes it (`en_XX`
            for mBART, `eng_Latn` for NLLB, `en` for M2M100, `eng` for SeamlessM4T).
        target_lang: code of the target language; required for multilingual models.
        source_prefix: text before every source sentence, such as T5's "translate English to German: " or MADLAD's
            "<2de> "; needed if the checkpoint's config or tokenizer has such prefixes, "" for none. The model reads
            it, and it is explained, but it is not a word of the sentence.
        dtype: dtype of the weights, float32 if None.
        device: device of the model; None uses a GPU if there is one.

    >>> model, tokenizer = load("demo:en-de")
    >>> type(model).__name__, model.training
    ('AlignedMarianMTModel', False)
    """
    from transformers import AutoModelForSeq2SeqLM

    if not isinstance(name, str | os.PathLike):
        raise InputError("name", str(name)[:40], "is not the name of a model", "give a folder, a Hub id or demo:en-de")
    if not isinstance(source_prefix, str | None):
        raise InputError("source_prefix", source_prefix, "is not text")
    name, dtype = os.fspath(name), str(dtype or "float32").removeprefix("torch.")
    check_choice("dtype", dtype, _DTYPES)
    with quiet():
        model, tokenizer = load_model(AutoModelForSeq2SeqLM, name, "model", dtype=dtype), load_tokenizer(name, "model")
    choose_languages(model, tokenizer, source_lang, target_lang)
    if source_prefix:
        tokenizer.source_prefix = source_prefix
    elif source_prefix is None and (known := known_prefixes(model, tokenizer)):
        problem = f"{os.path.basename(name)} needs a prefix before every source, but none was given"
        shown = " or ".join(f"source_prefix={prefix!r}" for prefix in known[:3])
        raise InputError("source_prefix", None, problem, f"give e.g. {shown}; '' for none")
    return _to(model.eval(), device), tokenizer


def translator(model: Any, tokenizer: Any = None, **options: Any) -> tuple[Any, Any]:
    """The given model and tokenizer; or if a name is given in place of the model, the loaded ones."""
    if not isinstance(model, str | os.PathLike):
        return model, tokenizer
    if tokenizer is not None:
        raise InputError("tokenizer", None, f"is loaded with {os.fspath(model)!r}", "give None, or name the others")
    return load(model, **options)  # type: ignore[arg-type]


def takes_names(function: Function) -> Function:
    """Decorator: a function of a model (and its tokenizer) also accepts a name, and then the options of `load`.

    Renamed arguments are also accepted by their former names.
    """
    signature = inspect.signature(function)
    place = next(n for n, name in enumerate(signature.parameters) if name in ("model", "models"))
    argument = list(signature.parameters)[place]

    @wraps(function)
    def named(*args: Any, **given: Any) -> Any:
        for old, new in _FORMER.items():
            if old in given and new in given:
                raise InputError(old, None, f"is the former name of {new}", f"give {new} only")
            given |= {new: given.pop(old)} if old in given else {}
        model = args[place] if len(args) > place else given.get(argument)
        if isinstance(model, str | os.PathLike):
            options = {name: given.pop(name) for name in _OPTIONS if name in given}
            bound = signature.bind_partial(*args, **given)
            loaded = translator(model, bound.arguments.get("tokenizer"), **options)
            both = dict(zip((argument, "tokenizer"), loaded, strict=True))
            bound.arguments |= {name: value for name, value in both.items() if name in signature.parameters}
            args, given = bound.args, bound.kwargs
        return function(*args, **given)

    return cast(Function, named)


def _to(model: Any, device: Any) -> Any:
    import torch

    if device is None:
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError("device", device, f"cannot be used ({str(error).splitlines()[0]})") from error
