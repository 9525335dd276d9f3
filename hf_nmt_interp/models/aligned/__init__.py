"""Translators with a head that is trained to align; importing this lets the Auto classes load them."""

from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .configuration_aligned import AlignedBartConfig as AlignedBartConfig
from .configuration_aligned import AlignedM2M100Config as AlignedM2M100Config
from .configuration_aligned import AlignedMarianConfig as AlignedMarianConfig
from .configuration_aligned import AlignedMBartConfig as AlignedMBartConfig
from .configuration_aligned import AlignedMT5Config as AlignedMT5Config
from .configuration_aligned import AlignedT5Config as AlignedT5Config
from .configuration_aligned import AlignmentHeadConfig as AlignmentHeadConfig
from .configuration_aligned import aligned_config as aligned_config
from .head import AlignmentHead as AlignmentHead
from .modeling_aligned import AlignedBartForConditionalGeneration as AlignedBartForConditionalGeneration
from .modeling_aligned import AlignedM2M100ForConditionalGeneration as AlignedM2M100ForConditionalGeneration
from .modeling_aligned import AlignedMarianMTModel as AlignedMarianMTModel
from .modeling_aligned import AlignedMBartForConditionalGeneration as AlignedMBartForConditionalGeneration
from .modeling_aligned import AlignedMT5ForConditionalGeneration as AlignedMT5ForConditionalGeneration
from .modeling_aligned import AlignedT5ForConditionalGeneration as AlignedT5ForConditionalGeneration
from .modeling_aligned import AlignmentHeadMixin as AlignmentHeadMixin
from .modeling_aligned import aligned_model as aligned_model

for _model in [
    kind for kind in AlignmentHeadMixin.__subclasses__() if kind.__module__ == AlignmentHeadMixin.__module__
]:
    _config: Any = _model.config_class
    AutoConfig.register(_config.model_type, _config)
    AutoModelForSeq2SeqLM.register(_config, _model)
    # save_pretrained puts this code next to the weights, for `trust_remote_code` where the package is not installed
    _config.register_for_auto_class()
    _model.register_for_auto_class("AutoModelForSeq2SeqLM")
