"""What calibration costs beyond the plain translator: training steps and decoding, as ratios of one run."""

import statistics
import time
from functools import partial

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from hf_nmt_interp.models.calibrated import CalibratedMarianConfig, CalibratedMarianMTModel
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.calibration import CalibrationConfig, CalibrationTrainer
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"d_model": 256, "encoder_layers": 4, "decoder_layers": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512}
HEADS = {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "vocab_size": 8000}
IDS = {"pad_token_id": 7999, "decoder_start_token_id": 7999, "eos_token_id": 0, "forced_eos_token_id": None}


def compare(plain, calibrated, turns):
    """Median of calibrated / plain in processor time: neighbours meet the same load, interrupted ones are left out."""

    def seconds(run) -> float:
        start = time.process_time()
        run()
        return time.process_time() - start

    seconds(plain), seconds(calibrated)
    ratios = []
    for turn in range(turns):
        order = (plain, calibrated) if turn % 2 else (calibrated, plain)
        times = {run: seconds(run) for run in order}
        ratios.append(times[calibrated] / times[plain])
    return statistics.median(ratios), f"from {min(ratios):.2f} to {max(ratios):.2f}"


@pytest.mark.benchmark
def test_a_training_step_costs_at_most_2_1_plain_ones(tmp_path):
    torch.manual_seed(0)
    options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "output_dir": str(tmp_path), "max_steps": 1}
    examples = [{"input_ids": [*torch.randint(1, 7999, (31,)).tolist(), 0], "labels": [5] * 31 + [0]}] * 32
    batch = pad_batch(examples, 7999)

    def stepper(model, make_trainer, make_config):
        collate = partial(pad_batch, pad_id=7999)
        trainer = make_trainer(model=model, args=make_config(**options), train_dataset=examples, data_collator=collate)
        trainer.create_optimizer()
        trainer.current_gradient_accumulation_steps = 1

        def step():
            trainer.training_step(trainer.model, dict(batch), torch.tensor(32 * 32))
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()

        return step

    plain = stepper(MarianMTModel(MarianConfig(**SIZES, **HEADS, **IDS)), TranslationTrainer, TranslationConfig)
    model = CalibratedMarianMTModel(CalibratedMarianConfig(**SIZES, **HEADS, **IDS, fusion="gate"))
    ratio, spread = compare(plain, stepper(model, CalibrationTrainer, CalibrationConfig), turns=9)
    print(f"\nstep of 1,024 tokens, calibrated / plain: {ratio:.2f}, {spread}")
    assert ratio < 2.1


@pytest.mark.benchmark
@pytest.mark.parametrize("fusion", ["gate", "anneal"])
def test_decoding_costs_at_most_a_quarter_more_than_plain_eager(fusion):
    torch.manual_seed(0)
    plain = MarianMTModel(MarianConfig(**SIZES, **HEADS, **IDS, attn_implementation="eager")).eval()
    config = CalibratedMarianConfig(**SIZES, **HEADS, **IDS, fusion=fusion, attn_implementation="eager")
    calibrated = CalibratedMarianMTModel(config).eval()
    ids = torch.randint(1, 7999, (8, 32))
    settings = {"max_new_tokens": 32, "min_new_tokens": 32, "num_beams": 4, "do_sample": False}
    mask = torch.ones_like(ids)
    mask[::2, 24:] = 0

    def generate(model):
        return lambda: model.generate(input_ids=ids, attention_mask=mask, **settings)

    ratio, spread = compare(generate(plain), generate(calibrated), turns=5)
    print(f"\nbeam search of 8 sentences with fusion {fusion}, calibrated / plain eager: {ratio:.2f}, {spread}")
    assert ratio < 1.25
