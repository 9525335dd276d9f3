"""Translators with calibrated cross-attention; importing this lets the Auto classes load them."""

from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .attention import Calibration as Calibration
from .configuration_calibrated import CalibratedBartConfig as CalibratedBartConfig
from .configuration_calibrated import CalibratedM2M100Config as CalibratedM2M100Config
from .configuration_calibrated import CalibratedMarianConfig as CalibratedMarianConfig
from .configuration_calibrated import CalibratedMBartConfig as CalibratedMBartConfig
from .fusion import FUSIONS as FUSIONS
from .fusion import Fusion as Fusion
from .modeling_calibrated import CalibratedAttentionMixin as CalibratedAttentionMixin
from .modeling_calibrated import CalibratedBartForConditionalGeneration as CalibratedBartForConditionalGeneration
from .modeling_calibrated import CalibratedM2M100ForConditionalGeneration as CalibratedM2M100ForConditionalGeneration
from .modeling_calibrated import CalibratedMarianMTModel as CalibratedMarianMTModel
from .modeling_calibrated import CalibratedMBartForConditionalGeneration as CalibratedMBartForConditionalGeneration
from .modeling_calibrated import CalibratedSeq2SeqLMOutput as CalibratedSeq2SeqLMOutput
from .modeling_calibrated import TwoPasses as TwoPasses

for _model in CalibratedAttentionMixin.__subclasses__():
    _config: Any = _model.config_class
    AutoConfig.register(_config.model_type, _config)
    AutoModelForSeq2SeqLM.register(_config, _model)
    # save_pretrained puts this code next to the weights, for `trust_remote_code` where the package is not installed
    _config.register_for_auto_class()
    _model.register_for_auto_class("AutoModelForSeq2SeqLM")
