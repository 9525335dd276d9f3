"""Translators with gated or pruned attention heads; importing this lets the Auto classes load them."""

from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .configuration_gated import GatedBartConfig as GatedBartConfig
from .configuration_gated import GatedM2M100Config as GatedM2M100Config
from .configuration_gated import GatedMarianConfig as GatedMarianConfig
from .configuration_gated import GatedMBartConfig as GatedMBartConfig
from .configuration_gated import GatedMT5Config as GatedMT5Config
from .configuration_gated import GatedT5Config as GatedT5Config
from .gates import HardConcreteGate as HardConcreteGate
from .modeling_gated import GatedBartForConditionalGeneration as GatedBartForConditionalGeneration
from .modeling_gated import GatedHeadsMixin as GatedHeadsMixin
from .modeling_gated import GatedM2M100ForConditionalGeneration as GatedM2M100ForConditionalGeneration
from .modeling_gated import GatedMarianMTModel as GatedMarianMTModel
from .modeling_gated import GatedMBartForConditionalGeneration as GatedMBartForConditionalGeneration
from .modeling_gated import GatedMT5ForConditionalGeneration as GatedMT5ForConditionalGeneration
from .modeling_gated import GatedT5ForConditionalGeneration as GatedT5ForConditionalGeneration

for _model in GatedHeadsMixin.__subclasses__():
    _config: Any = _model.config_class
    AutoConfig.register(_config.model_type, _config)
    AutoModelForSeq2SeqLM.register(_config, _model)
    # save_pretrained puts this code next to the weights, for `trust_remote_code` where the package is not installed
    _config.register_for_auto_class()
    _model.register_for_auto_class("AutoModelForSeq2SeqLM")
