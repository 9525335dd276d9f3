"""Translators with gated or pruned attention heads; importing this lets the Auto classes load them."""

from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .configuration_gated import GatedBartConfig, GatedM2M100Config, GatedMarianConfig, GatedMBartConfig, GatedT5Config
from .gates import HardConcreteGate
from .modeling_gated import (
    GatedBartForConditionalGeneration,
    GatedHeadsMixin,
    GatedM2M100ForConditionalGeneration,
    GatedMarianMTModel,
    GatedMBartForConditionalGeneration,
    GatedT5ForConditionalGeneration,
)

__all__ = [
    "GatedBartConfig",
    "GatedBartForConditionalGeneration",
    "GatedHeadsMixin",
    "GatedM2M100Config",
    "GatedM2M100ForConditionalGeneration",
    "GatedMBartConfig",
    "GatedMBartForConditionalGeneration",
    "GatedMarianConfig",
    "GatedMarianMTModel",
    "GatedT5Config",
    "GatedT5ForConditionalGeneration",
    "HardConcreteGate",
]

for _model in GatedHeadsMixin.__subclasses__():
    _config: Any = _model.config_class
    AutoConfig.register(_config.model_type, _config)
    AutoModelForSeq2SeqLM.register(_config, _model)
    # save_pretrained puts this code next to the weights, for `trust_remote_code` where the package is not installed
    _config.register_for_auto_class()
    _model.register_for_auto_class("AutoModelForSeq2SeqLM")
