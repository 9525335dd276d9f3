"""Tiny random translators of every supported family, built offline, for tests that need real forward passes.

Every weight is drawn again from the seed, with biases, norm weights and `final_logits_bias` away from their usual
0 and 1, so that a forgotten bias or a mixed-up norm shows.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_nmt_interp.models.conv import ConvSeq2SeqConfig, ConvSeq2SeqForConditionalGeneration
from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig, LuongSeq2SeqForConditionalGeneration

RECURRENT = ["lstm", "lstm_fed", "conv"]  # no Transformers: they have no rules of LRP
FAMILIES = ["marian", "bart", "mbart", "m2m100", "t5", "t5_gated", "bert2bert"]
VOCABULARY = 40
FIRST_WORD = 4  # ids below, and the last one (Marian's padding), are special in some family

_BART_LIKE = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "scale_embedding": True,
}
_FAIRSEQ_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "d_kv": 6,  # 2 heads of 6: the inner size is neither d_model nor d_ff
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
_BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}


def _build(family: str, overrides: dict) -> PreTrainedModel:
    if family == "marian":
        pad = overrides.get("vocab_size", VOCABULARY) - 1
        ids = {"eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": pad, "decoder_start_token_id": pad}
        return MarianMTModel(MarianConfig(**(_BART_LIKE | ids | {"activation_function": "swish"} | overrides)))
    if family == "bart":
        return BartForConditionalGeneration(BartConfig(**(_BART_LIKE | _FAIRSEQ_IDS | overrides)))
    if family == "mbart":
        return MBartForConditionalGeneration(MBartConfig(**(_BART_LIKE | _FAIRSEQ_IDS | overrides)))
    if family == "m2m100":
        relu = {"activation_function": "relu"}
        return M2M100ForConditionalGeneration(M2M100Config(**(_BART_LIKE | _FAIRSEQ_IDS | relu | overrides)))
    if family == "t5":
        return T5ForConditionalGeneration(T5Config(**(_T5 | overrides)))
    if family == "t5_gated":  # T5 1.1, Flan-T5, mT5: gated FFN, decoder output not scaled
        gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
        return T5ForConditionalGeneration(T5Config(**(_T5 | gated | overrides)))
    if family == "bert2bert":
        encoder = BertConfig(**(_BERT | overrides))
        decoder = BertConfig(**(_BERT | overrides), is_decoder=True, add_cross_attention=True)
        ids = {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2}
        config = EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, **ids)
        config._attn_implementation = encoder._attn_implementation  # the copies made above lose it
        return EncoderDecoderModel(config)
    small = {"vocab_size": VOCABULARY, "embedding_size": 12, "hidden_size": 16} | _FAIRSEQ_IDS
    if family in ("lstm", "lstm_fed"):  # without and with input feeding
        lstm = {"attention_heads": 2, "input_feeding": family == "lstm_fed"}
        config = LuongSeq2SeqConfig(**(small | lstm | overrides))
        return LuongSeq2SeqForConditionalGeneration(config)
    if family == "conv":
        layers = {"encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 64}
        return ConvSeq2SeqForConditionalGeneration(ConvSeq2SeqConfig(**(small | layers | overrides)))
    raise ValueError(f"family={family!r} is not one of {FAMILIES + RECURRENT}")


def tiny_model(family: str, dtype: torch.dtype = torch.float32, seed: int = 0, **overrides) -> PreTrainedModel:
    """A tiny random model of a family, in eval mode, the same for the same seed; the global seed is left alone.

    Args:
        family: one of FAMILIES or RECURRENT.
        dtype: float32 or float64; both hold the same weights up to rounding.
        seed: of the weights.
        overrides: fields of the family's configuration (for bert2bert: of both BERT configurations).
    """
    with torch.random.fork_rng(devices=[]):
        return randomised(_build(family, overrides), seed).to(dtype).eval()


def randomised(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """The model with every weight drawn from the seed."""
    generator = torch.Generator().manual_seed(seed)

    def normal(tensor: torch.Tensor) -> torch.Tensor:
        return torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)

    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(normal(module.weight) / math.sqrt(module.in_features))
                if module.bias is not None:
                    module.bias.copy_(0.3 * normal(module.bias))
            elif isinstance(module, nn.LSTM):
                for weight in module.parameters():
                    weight.copy_(normal(weight) / math.sqrt(module.hidden_size))
            elif isinstance(module, nn.Embedding) and module.weight.requires_grad:  # sinusoids stay as they are
                module.weight.copy_(0.5 * normal(module.weight))
            elif "Norm" in type(module).__name__:
                module.weight.copy_(1 + 0.3 * normal(module.weight))
                if getattr(module, "bias", None) is not None:
                    module.bias.copy_(0.3 * normal(module.bias))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(normal(model.final_logits_bias))
    return model


def random_batch(model: PreTrainedModel, lengths: Sequence[tuple[int, int]], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random sentence pairs, padded on the right; a pair's ids depend on its lengths and index only.

    Args:
        model: gives the ids of padding and end of sentence and the size of the vocabulary.
        lengths: (source, target) lengths of each pair, both with the final EOS.
        seed: of the ids.

    Returns:
        input_ids [B, S], attention_mask [B, S], labels [B, T] (padding -100).
    """
    config = model.config
    vocabulary = getattr(config, "vocab_size", None) or config.decoder.vocab_size
    batch = {
        "input_ids": torch.full((len(lengths), max(s for s, _ in lengths)), config.pad_token_id),
        "attention_mask": torch.zeros(len(lengths), max(s for s, _ in lengths), dtype=torch.long),
        "labels": torch.full((len(lengths), max(t for _, t in lengths)), -100),
    }
    for row, (source, target) in enumerate(lengths):
        generator = torch.Generator().manual_seed(1000 * seed + row)
        words = torch.randint(FIRST_WORD, vocabulary - 1, (source + target - 2,), generator=generator)
        eos = torch.tensor([config.eos_token_id])
        batch["input_ids"][row, :source] = torch.cat([words[: source - 1], eos])
        batch["attention_mask"][row, :source] = 1
        batch["labels"][row, :target] = torch.cat([words[source - 1 :], eos])
    return batch
