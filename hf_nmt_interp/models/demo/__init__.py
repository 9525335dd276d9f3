"""The translators in the box: small Marian models that come with the package, for offline use."""

from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError

_HERE = Path(__file__).parent


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

    known = sorted(path.parent.name for path in _HERE.glob("*/config.json"))
    if direction not in known:
        raise InputError(f"direction: {direction!r} is not in the box; it has {', '.join(known)}")
    folder = _HERE / direction
    return MarianMTModel.from_pretrained(folder, dtype=torch.float32), MarianTokenizer.from_pretrained(folder)
