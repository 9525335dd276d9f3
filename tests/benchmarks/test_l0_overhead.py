"""What L0 training costs beyond plain training of the same translator, as the ratio of their steps in one run."""

import statistics
import time
from functools import partial

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from hf_nmt_interp.models.gated import GatedMarianConfig, GatedMarianMTModel
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.l0 import L0Config, L0Trainer
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"d_model": 256, "encoder_layers": 4, "decoder_layers": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512}
HEADS = {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "vocab_size": 8000}
IDS = {"pad_token_id": 7999, "decoder_start_token_id": 7999, "eos_token_id": 0, "forced_eos_token_id": 0}


@pytest.mark.benchmark
def test_a_step_costs_at_most_five_percent_more(tmp_path):
    torch.manual_seed(0)
    options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "output_dir": str(tmp_path), "max_steps": 1}
    models = [MarianMTModel(MarianConfig(**SIZES, **HEADS, **IDS))]
    models.append(GatedMarianMTModel(GatedMarianConfig(**SIZES, **HEADS, **IDS)))
    kinds = [(TranslationTrainer, TranslationConfig), (L0Trainer, L0Config)]
    examples = [{"input_ids": [*torch.randint(1, 7999, (31,)).tolist(), 0], "labels": [5] * 31 + [0]}] * 32
    batch = pad_batch(examples, 7999)
    trainers = []
    for model, (make_trainer, make_config) in zip(models, kinds, strict=True):
        collate = partial(pad_batch, pad_id=7999)
        trainer = make_trainer(model=model, args=make_config(**options), train_dataset=examples, data_collator=collate)
        trainer.create_optimizer()
        trainer.current_gradient_accumulation_steps = 1
        trainers.append(trainer)

    def seconds(trainer) -> float:
        start = time.process_time()
        trainer.training_step(trainer.model, dict(batch), torch.tensor(32 * 32))
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        return time.process_time() - start

    for trainer in trainers:
        seconds(trainer)
    ratios = []
    for turn in range(9):  # pairs of neighbouring steps meet the same load; the median leaves interrupted ones out
        first, second = trainers if turn % 2 else trainers[::-1]
        times = {first: seconds(first), second: seconds(second)}
        ratios.append(times[trainers[1]] / times[trainers[0]])
    ratio = statistics.median(ratios)
    print(f"\nstep of 1,024 tokens, L0 / plain: {ratio:.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
    assert ratio < 1.05
