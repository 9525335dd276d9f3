"""The translators in the box: small Marian models that come with the package, for offline use."""

from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError

_HERE = Path(__file__).parent


def demo_folder(direction: str = "en-de") -> Path:
    """Where a translator of the box is kept, as `save_pretrained` writes it."""
    known = sorted(path.parent.name for path in _HERE.glob("*/config.json"))
    if direction not in known:
        raise InputError("direction", direction, "is not in the box", f"it has {', '.join(known)}")
    return _HERE / direction


def find_model(name: str) -> str:
    """What `from_pretrained` takes: the folder for `demo:en-de` and the like, anything else as it is."""
    return str(demo_folder(name.removeprefix("demo:"))) if name.startswith("demo:") else name


def load_demo(direction: str = "en-de") -> tuple[Any, Any]:
    """A small translator and its tokenizer, from inside the package, in float32.

    Args:
        direction: "en-de" or "de-en".

    >>> model, tokenizer = load_demo("en-de")
    >>> model.config.encoder_layers, model.config.encoder_attention_heads, str(model.dtype)
    (4, 8, 'torch.float32')
    """
    import torch
    from transformers import MarianMTModel, MarianTokenizer

    folder = demo_folder(direction)
    return MarianMTModel.from_pretrained(folder, dtype=torch.float32), MarianTokenizer.from_pretrained(folder)
