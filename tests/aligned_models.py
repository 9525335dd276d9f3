"""Tiny random translators with an alignment head whose links are far from uniform."""

from typing import Any

import torch

from hf_nmt_interp.models import aligned
from tests.tiny_models import tiny_model

CLASSES: dict[str, Any] = {
    "marian": aligned.AlignedMarianMTModel,
    "bart": aligned.AlignedBartForConditionalGeneration,
    "mbart": aligned.AlignedMBartForConditionalGeneration,
    "m2m100": aligned.AlignedM2M100ForConditionalGeneration,
    "t5": aligned.AlignedT5ForConditionalGeneration,
}


def aligned_copy(plain: Any, **settings: Any) -> Any:
    """A model with the weights of a plain one and a random head, in eval mode."""
    families = {cls.__mro__[2]: cls for cls in CLASSES.values()}
    config = families[type(plain)].config_class(**plain.config.to_dict(), **settings)
    model = families[type(plain)](config)
    model.load_state_dict(plain.state_dict(), strict=False)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.alignment_head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    model.generation_config = plain.generation_config
    return model.to(plain.dtype).eval()


def tiny_aligned(family: str = "marian", dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """A tiny random model of a family, with a head."""
    return aligned_copy(tiny_model(family, dtype), **settings)
