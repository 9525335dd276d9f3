"""From `--model` to a model and its tokenizer."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from hf_nmt_interp.decoding.languages import set_languages
from hf_nmt_interp.errors import InputError

_BOX = "demo:"


def load(
    name: str, device: str = "auto", source_lang: str | None = None, target_lang: str | None = None
) -> tuple[Any, Any]:
    """A translator (`demo:en-de`, a local folder or an id on the Hub) and its tokenizer, ready to be used.

    The device "auto" is a GPU if there is one; codes are for models of many languages (NLLB, M2M100, mBART).
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status(Text(f"Loading {name}")) if console.is_terminal else nullcontext():
        model, tokenizer = _load(name)
        if (source_lang or target_lang) and not hasattr(tokenizer, "src_lang"):
            flag = "--source-lang" if source_lang else "--target-lang"
            raise InputError(flag, None, f"{type(tokenizer).__name__} has no languages to choose", "leave it out")
        set_languages(model, tokenizer, source_lang, target_lang)
        return _to(model.eval(), device), tokenizer


def load_for(args: argparse.Namespace, name: str | None = None) -> tuple[Any, Any]:
    """The translator of the arguments, or of that name, and its tokenizer."""
    return load(name or args.model, args.device, args.source_lang, args.target_lang)


def box() -> list[str]:
    """Directions of the translators in the box."""
    from hf_nmt_interp.models import demo

    return sorted(path.parent.name for path in Path(str(demo.__file__)).parent.glob("*/config.json"))


def _load(name: str) -> tuple[Any, Any]:
    if name.startswith(_BOX) and name.removeprefix(_BOX) not in box():
        known = ", ".join(_BOX + known for known in box()) or "nothing"
        raise InputError("--model", name, "is not in the box", f"it has {known}")
    from transformers import AutoModelForSeq2SeqLM

    from hf_nmt_interp.models.demo import load_demo
    from hf_nmt_interp.models.loading import load_model, load_tokenizer

    with quiet():
        if name.startswith(_BOX):
            return load_demo(name.removeprefix(_BOX))
        return load_model(AutoModelForSeq2SeqLM, name), load_tokenizer(name)


def _to(model: Any, device: str) -> Any:
    import torch

    if device == "auto":
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise InputError("--device", device, f"cannot be used ({str(error).splitlines()[0]})") from error


@contextmanager
def quiet() -> Iterator[None]:
    """No bars for reading and writing weights; the Hub's download bars stay."""
    from transformers.utils import logging

    before = logging.set_tqdm_hook(lambda make, args, options: make(*args, **options | {"disable": True}))
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)
