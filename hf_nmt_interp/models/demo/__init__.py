"""The bundled translators: small Marian models that come with the package, for offline use."""

from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError

_HERE = Path(__file__).parent


def box() -> list[str]:
    """Directions of the bundled translators."""
    return sorted(path.parent.name for path in _HERE.glob("*/config.json"))


def demo_folder(direction: str = "en-de") -> Path:
    """Folder of a bundled translator, as `save_pretrained` writes it."""
    if direction not in box():
        raise InputError("direction", direction, "is not a bundled translator", f"choose from {', '.join(box())}")
    return _HERE / direction


def find_model(name: str, argument: str = "--model") -> str:
    """The argument for `from_pretrained`: the folder for names such as `demo:en-de`; other names are unchanged."""
    if not name.startswith("demo:"):
        return name
    try:
        return str(demo_folder(name.removeprefix("demo:")))
    except InputError as error:
        known = ", ".join(f"demo:{direction}" for direction in box())
        raise error.at(argument=argument, value=name, remedy=f"choose from {known}") from error


def load_demo(direction: str = "en-de") -> tuple[Any, Any]:
    """Load a bundled translator, which has an alignment head, and its tokenizer, in float32.

    Args:
        direction: "en-de" or "de-en".

    >>> model, tokenizer = load_demo("en-de")
    >>> model.config.encoder_layers, model.config.encoder_attention_heads, str(model.dtype)
    (4, 8, 'torch.float32')
    """
    import torch
    from transformers import MarianTokenizer

    from hf_nmt_interp.models.aligned import AlignedMarianMTModel

    folder = demo_folder(direction)
    return AlignedMarianMTModel.from_pretrained(folder, dtype=torch.float32), MarianTokenizer.from_pretrained(folder)
