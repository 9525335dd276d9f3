"""Bag-of-words proxy for how a translator learns words; importing this lets the Auto classes load it."""

from transformers import AutoConfig, AutoModel

from .configuration_proxy import BagOfWordsConfig as BagOfWordsConfig
from .modeling_proxy import BagOfWordsProxy as BagOfWordsProxy

AutoConfig.register(BagOfWordsConfig.model_type, BagOfWordsConfig)
AutoModel.register(BagOfWordsConfig, BagOfWordsProxy)
# save_pretrained puts this code next to the weights, for `trust_remote_code` where the package is not installed
BagOfWordsConfig.register_for_auto_class()
BagOfWordsProxy.register_for_auto_class("AutoModel")
