"""Trainers of every kind, of any size, for tests and benchmarks of what all of them share."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel

from hf_nmt_interp.models.aligned import AlignedMarianConfig, AlignedMarianMTModel
from hf_nmt_interp.models.calibrated import CalibratedMarianConfig, CalibratedMarianMTModel
from hf_nmt_interp.models.conv import ConvSeq2SeqConfig, ConvSeq2SeqForConditionalGeneration
from hf_nmt_interp.models.gated import GatedMarianConfig, GatedMarianMTModel
from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig, LuongSeq2SeqForConditionalGeneration
from hf_nmt_interp.training.alignment import AlignmentConfig, AlignmentTrainer
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.calibration import CalibrationConfig, CalibrationTrainer
from hf_nmt_interp.training.l0 import L0Config, L0Trainer
from hf_nmt_interp.training.mrt import MRTConfig, MRTTrainer
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer

TRAINERS: dict[str, tuple[Any, Any, Any, Any]] = {  # of a model and its configuration
    "translation": (TranslationTrainer, TranslationConfig, MarianMTModel, MarianConfig),
    "l0": (L0Trainer, L0Config, GatedMarianMTModel, GatedMarianConfig),
    "mrt": (MRTTrainer, MRTConfig, MarianMTModel, MarianConfig),
    "calibrated": (CalibrationTrainer, CalibrationConfig, CalibratedMarianMTModel, CalibratedMarianConfig),
    "alignment": (AlignmentTrainer, AlignmentConfig, AlignedMarianMTModel, AlignedMarianConfig),
    "lstm": (TranslationTrainer, TranslationConfig, LuongSeq2SeqForConditionalGeneration, LuongSeq2SeqConfig),
    "conv": (TranslationTrainer, TranslationConfig, ConvSeq2SeqForConditionalGeneration, ConvSeq2SeqConfig),
}


class Speller:
    """A tokenizer that spells ids as numbers."""

    def batch_decode(self, rows, skip_special_tokens=True):
        return [" ".join(map(str, row)) for row in rows]

    def save_pretrained(self, folder):
        """Nothing to save."""


def make_model(kind: str, width: int, layers: int, vocabulary: int) -> Any:
    """A random model without dropout, the same each time."""
    torch.manual_seed(0)
    _, _, model, config = TRAINERS[kind]
    ids = {"pad_token_id": vocabulary - 1, "decoder_start_token_id": vocabulary - 1, "eos_token_id": 0}
    sizes: dict[str, Any] = {"vocab_size": vocabulary, "dropout": 0.0}
    if kind in ("lstm", "conv"):
        depth = {"encoder_layers": layers, "decoder_layers": layers} if kind == "conv" else {}
        return model(config(**sizes, **ids, bos_token_id=0, embedding_size=width, hidden_size=width, **depth))
    for side in ("encoder", "decoder"):
        heads, inner = max(2, width // 32), 2 * width
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": heads, f"{side}_ffn_dim": inner}
    return model(config(**sizes, **ids, d_model=width, attention_dropout=0.0, forced_eos_token_id=None))


def make_any_trainer(
    kind: str, folder: Path, sizes: tuple[int, int, int], examples: list[dict[str, Any]], **options: Any
) -> Any:
    """A trainer of a kind on a model of (width, layers, vocabulary)."""
    make, config, _, _ = TRAINERS[kind]
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "save_strategy": "no"}
    more: dict[str, Any] = {}
    if kind == "mrt":
        quiet |= {"candidates": 8, "generation_max_length": 24}
        more = {"processing_class": Speller()}
    model = make_model(kind, *sizes)
    collate = partial(pad_batch, pad_id=model.config.pad_token_id)
    if kind == "alignment":
        examples = [example | {"links": [0, 0, 1, 1]} for example in examples]
    args = config(output_dir=str(folder), **quiet | options)
    return make(model=model, args=args, train_dataset=examples, data_collator=collate, **more)
