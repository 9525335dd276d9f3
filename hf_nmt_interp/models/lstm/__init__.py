"""LSTM translator and classifier with attention; importing this lets the Auto classes load them."""

from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from .configuration_lstm import LSTMAttentionConfig, LuongSeq2SeqConfig
from .modeling_lstm import LSTMAttentionForSequenceClassification, LuongSeq2SeqForConditionalGeneration

__all__ = [
    "LSTMAttentionConfig",
    "LSTMAttentionForSequenceClassification",
    "LuongSeq2SeqConfig",
    "LuongSeq2SeqForConditionalGeneration",
]

AutoConfig.register(LuongSeq2SeqConfig.model_type, LuongSeq2SeqConfig)
AutoConfig.register(LSTMAttentionConfig.model_type, LSTMAttentionConfig)
AutoModelForSeq2SeqLM.register(LuongSeq2SeqConfig, LuongSeq2SeqForConditionalGeneration)
AutoModelForSequenceClassification.register(LSTMAttentionConfig, LSTMAttentionForSequenceClassification)
# save_pretrained puts this code next to the weights, for `trust_remote_code` where the package is not installed
LuongSeq2SeqConfig.register_for_auto_class()
LSTMAttentionConfig.register_for_auto_class()
LuongSeq2SeqForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
LSTMAttentionForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
