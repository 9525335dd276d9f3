"""From `--model` to a model and its tokenizer."""

import argparse
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.progress import counting


def load(
    name: str,
    device: str = "auto",
    source_lang: str | None = None,
    target_lang: str | None = None,
    source_prefix: str | None = None,
    dtype: str | None = None,
) -> tuple[Any, Any]:
    """`hf_nmt_interp.load` with a progress message, and errors that name flags; the device may be "auto"."""
    from hf_nmt_interp.decoding import translators

    with counting(f"Loading {name}"):
        try:
            found = None if device == "auto" else device
            return translators.load(name, source_lang, target_lang, source_prefix, dtype, found)
        except InputError as error:
            flag = f"--{error.argument.replace('_', '-')}"
            raise error.at(argument=flag, remedy=error.remedy.replace("source_prefix=", "--source-prefix ")) from error


def load_for(args: argparse.Namespace, name: str | None = None) -> tuple[Any, Any]:
    """The translator of the arguments, or of that name, and its tokenizer."""
    return load(name or args.model, args.device, args.source_lang, args.target_lang, args.source_prefix, args.dtype)
