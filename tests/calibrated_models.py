"""Tiny random calibrated translators, whose masks and gates are far from constant."""

from typing import Any

import torch

from hf_nmt_interp.models import calibrated
from tests.tiny_models import tiny_model

CLASSES: dict[str, Any] = {
    "marian": calibrated.CalibratedMarianMTModel,
    "bart": calibrated.CalibratedBartForConditionalGeneration,
    "mbart": calibrated.CalibratedMBartForConditionalGeneration,
    "m2m100": calibrated.CalibratedM2M100ForConditionalGeneration,
}


def calibrated_copy(plain: Any, fusion: str = "gate", **settings: Any) -> Any:
    """A calibrated model with the weights of a plain one, in eval mode."""
    families = {cls.__mro__[2]: cls for cls in CLASSES.values()}
    config = families[type(plain)].config_class(**plain.config.to_dict(), fusion=fusion, **settings)
    config._attn_implementation = plain.config._attn_implementation
    model = families[type(plain)](config)
    model.load_state_dict(plain.state_dict(), strict=False)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".fusion." in name or name in model.mask_parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        for layer in model.fusions():
            if hasattr(layer, "step"):
                layer.step.fill_(400)
    model.generation_config = plain.generation_config
    return model.to(plain.dtype).eval()


def tiny_calibrated(
    family: str = "marian", fusion: str = "gate", dtype: torch.dtype = torch.float32, **overrides: Any
) -> Any:
    """A tiny random calibrated model of a family; `anneal` is at step 400 of a time constant of 1,000."""
    return calibrated_copy(tiny_model(family, dtype, **overrides), fusion, anneal_steps=1000.0)
