"""Translators with calibrated cross-attention; importing this lets the Auto classes load them."""

from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .attention import Calibration
from .configuration_calibrated import (
    CalibratedBartConfig,
    CalibratedM2M100Config,
    CalibratedMarianConfig,
    CalibratedMBartConfig,
)
from .fusion import FUSIONS, Fusion
from .modeling_calibrated import (
    CalibratedAttentionMixin,
    CalibratedBartForConditionalGeneration,
    CalibratedM2M100ForConditionalGeneration,
    CalibratedMarianMTModel,
    CalibratedMBartForConditionalGeneration,
    CalibratedSeq2SeqLMOutput,
    TwoPasses,
)

__all__ = [
    "FUSIONS",
    "CalibratedAttentionMixin",
    "CalibratedBartConfig",
    "CalibratedBartForConditionalGeneration",
    "CalibratedM2M100Config",
    "CalibratedM2M100ForConditionalGeneration",
    "CalibratedMBartConfig",
    "CalibratedMBartForConditionalGeneration",
    "CalibratedMarianConfig",
    "CalibratedMarianMTModel",
    "CalibratedSeq2SeqLMOutput",
    "Calibration",
    "Fusion",
    "TwoPasses",
]

for _model in CalibratedAttentionMixin.__subclasses__():
    _config: Any = _model.config_class
    AutoConfig.register(_config.model_type, _config)
    AutoModelForSeq2SeqLM.register(_config, _model)
    # save_pretrained puts this code next to the weights, for `trust_remote_code` where the package is not installed
    _config.register_for_auto_class()
    _model.register_for_auto_class("AutoModelForSeq2SeqLM")
