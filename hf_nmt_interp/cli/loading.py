"""From `--model` to a model and its tokenizer."""

import argparse
from contextlib import nullcontext
from typing import Any

from hf_nmt_interp.errors import InputError


def load(
    name: str,
    device: str = "auto",
    source_lang: str | None = None,
    target_lang: str | None = None,
    source_prefix: str | None = None,
) -> tuple[Any, Any]:
    """`hf_nmt_interp.load` whose errors name flags, and which says that it is busy; the device may be "auto"."""
    from rich.console import Console
    from rich.text import Text

    from hf_nmt_interp.decoding import translators

    console = Console(stderr=True)
    with console.status(Text(f"Loading {name}")) if console.is_terminal else nullcontext():
        try:
            found = None if device == "auto" else device
            return translators.load(name, source_lang, target_lang, source_prefix, device=found)
        except InputError as error:
            flag = f"--{error.argument.replace('_', '-')}"
            raise error.at(argument=flag, remedy=error.remedy.replace("source_prefix=", "--source-prefix ")) from error


def load_for(args: argparse.Namespace, name: str | None = None) -> tuple[Any, Any]:
    """The translator of the arguments, or of that name, and its tokenizer."""
    return load(name or args.model, args.device, args.source_lang, args.target_lang, args.source_prefix)
