"""A model of base size with a tokenizer, and a Python that has Inseq."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import MarianConfig, MarianMTModel


def base_model() -> MarianMTModel:
    """A random Marian model of base size: 6+6 layers, width 512, 8 heads, 2048 inner units, 32,000 pieces."""
    torch.manual_seed(0)
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1}
    config = MarianConfig(
        vocab_size=32_000, d_model=512, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
        encoder_attention_heads=8, decoder_attention_heads=8, max_position_embeddings=512, **ids,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def word_tokenizer():
    """One word an id: w1, w2, ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "</s>": 1, "<unk>": 2} | {f"w{i}": i for i in range(3, 32_000)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<pad>", model_max_length=512
    )


def run_with_inseq(program: str) -> dict:
    """What a program prints as JSON in its last line, run by a Python that has Inseq."""
    python = os.environ.get("HF_NMT_INTERP_INSEQ_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import inseq, pytest"], capture_output=True).returncode:
        need = "install pytest and inseq==0.7.1"
        pytest.skip(f"{python} cannot import both; {need}, or name another in HF_NMT_INTERP_INSEQ_PYTHON")
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    run = subprocess.run([python, program], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])
