"""Tiny random models of every type in transformers' own table of sequence-to-sequence models."""

from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModelForSeq2SeqLM,
    BertConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    PreTrainedModel,
    RobertaConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

from tests.tiny_models import VOCABULARY, randomised

TYPES = [name for name in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES if name != "encoder-decoder"]
TEXT_TYPES = [name for name in TYPES if CONFIG_MAPPING[name].is_encoder_decoder]
COMPOSED = ["bert2bert_narrow", "roberta2roberta"]
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
_WIDTH = "d_model hidden_size cross_attention_hidden_size"
_LAYERS = (
    "encoder_layers decoder_layers num_layers num_decoder_layers num_encoder_layers num_hidden_layers "
    "speech_encoder_layers encoder_attention_heads decoder_attention_heads num_heads num_attention_heads "
    "num_key_value_heads num_encoder_attention_heads num_decoder_attention_heads speech_encoder_attention_heads "
    "encoder_sparse_step decoder_sparse_step"
)
_INNER = "encoder_ffn_dim decoder_ffn_dim d_ff intermediate_size speech_encoder_intermediate_size"
_VOCABULARIES = "vocab_size src_vocab_size tgt_vocab_size t2u_vocab_size char_vocab_size unit_hifi_gan_vocab_size"
_POSITIONS = "max_position_embeddings max_encoder_position_embeddings max_decoder_position_embeddings"
SMALL: dict[str, Any] = (
    dict.fromkeys(_WIDTH.split(), 16)
    | dict.fromkeys(_LAYERS.split(), 2)
    | dict.fromkeys(_INNER.split(), 24)
    | dict.fromkeys(_VOCABULARIES.split(), VOCABULARY)
    | dict.fromkeys(_POSITIONS.split(), 64)
    | {"head_dim": 8, "d_kv": 8, "attention_window": 4, "num_experts": 4, "expert_capacity": 64, "local_radius": 3}
    | {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "layer_types": ["full_attention"] * 2}
    | {
        "relative_attention_num_buckets": 8,
        "num_buckets": 8,
        "attention_type": "original_full",
        "query_pre_attn_scalar": 8,
    }
    | IDS
)


def _small(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _small(value) if isinstance(value, dict) else SMALL.get(name, value) for name, value in config.items()
    }


def tiny_of_type(name: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A tiny random model of a type in `TEXT_TYPES` or `COMPOSED`."""
    if name in COMPOSED:
        kind = RobertaConfig if name == "roberta2roberta" else BertConfig
        small = {key: value for key, value in SMALL.items() if key in kind().to_dict()} | IDS
        decoder = kind(**small | {"is_decoder": True, "add_cross_attention": True})
        encoder = kind(**small | ({} if kind is RobertaConfig else {"hidden_size": 24, "num_attention_heads": 3}))
        model: Any = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, **IDS))
    else:
        config = CONFIG_MAPPING[name].from_dict(_small(CONFIG_MAPPING[name]().to_dict()))
        ids = IDS | ({"pad_token_id": 0, "bos_token_id": 1} if name == "prophetnet" else {})  # it counts from padding
        for key, value in ids.items():  # T5's and its like take no start token from a dictionary
            setattr(config, key, value)
        model = AutoModelForSeq2SeqLM.from_config(config)
    return randomised(model).to(dtype).eval()
