"""Convolutional translator; importing this lets the Auto classes load it."""

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .configuration_conv import ConvSeq2SeqConfig as ConvSeq2SeqConfig
from .modeling_conv import ConvSeq2SeqForConditionalGeneration as ConvSeq2SeqForConditionalGeneration

AutoConfig.register(ConvSeq2SeqConfig.model_type, ConvSeq2SeqConfig)
AutoModelForSeq2SeqLM.register(ConvSeq2SeqConfig, ConvSeq2SeqForConditionalGeneration)
# save_pretrained puts this code next to the weights, for `trust_remote_code` where the package is not installed
ConvSeq2SeqConfig.register_for_auto_class()
ConvSeq2SeqForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
