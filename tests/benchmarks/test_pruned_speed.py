"""What gates cost and what pruned heads save, at base size (d 512, 6 + 6 layers, 8 heads), as ratios of one run."""

import time
from functools import partial

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from hf_nmt_interp.models.gated import GatedMarianConfig, GatedMarianMTModel

pytestmark = pytest.mark.usefixtures("one_thread")

BASE = {
    "vocab_size": 8000,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "pad_token_id": 7999,
    "decoder_start_token_id": 7999,
    "eos_token_id": 0,
    "forced_eos_token_id": None,
}


def fastest(run, repeats):
    """Processor seconds of the fastest run, on one thread: other work on the machine adds little to it."""
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.benchmark
def test_time_falls_with_the_heads():
    torch.manual_seed(0)
    model = GatedMarianMTModel(GatedMarianConfig(**BASE)).eval()
    ids = torch.randint(1, 7999, (8, 64))
    settings = {"max_new_tokens": 24, "min_new_tokens": 24, "num_beams": 4, "do_sample": False}
    models = {}
    for heads in [8, 4, 2, 1, 0]:
        model.set_kept_heads({kind: [list(range(heads))] * 6 for kind in ["encoder", "decoder", "cross"]})
        models[heads] = model.prune()
    encoder, generation = dict.fromkeys(models, float("inf")), dict.fromkeys(models, float("inf"))
    with torch.no_grad():
        for _ in range(5):  # in turn, so that a change of the machine's load meets all
            for heads, pruned in models.items():
                encoder[heads] = min(encoder[heads], fastest(partial(pruned.get_encoder(), ids), 2))
                run = partial(pruned.generate, ids[:4], **settings)
                generation[heads] = min(generation[heads], fastest(run, 1))
    print("\nheads of 8 | parameters | encoder | generation")
    for heads, pruned in models.items():
        ratios = f"{encoder[heads] / encoder[8]:7.2f} | {generation[heads] / generation[8]:10.2f}"
        print(f"{heads:10} | {pruned.num_parameters() / 1e6:8.1f} M | {ratios}")
    assert encoder[2] < encoder[8]
    assert generation[2] < generation[8]


@pytest.mark.benchmark
def test_gates_cost_at_most_five_percent_of_a_training_step():
    torch.manual_seed(0)
    plain = MarianMTModel(MarianConfig(**BASE)).train()
    gated = GatedMarianMTModel(GatedMarianConfig(**BASE)).train()
    ids = torch.randint(1, 7999, (16, 32))

    def step(model):
        loss = model(input_ids=ids, labels=ids).loss
        (loss + 0.01 * model.l0_penalty() if model is gated else loss).backward()
        model.zero_grad()

    seconds = {"plain": float("inf"), "gated": float("inf")}
    for _ in range(6):  # alternating, so that a change of the machine's load meets both
        for name, model in [("plain", plain), ("gated", gated)]:
            seconds[name] = min(seconds[name], fastest(lambda model=model: step(model), repeats=1))
    ratio = seconds["gated"] / seconds["plain"]
    print(f"\ntraining step, gated / plain: {ratio:.3f} ({seconds['plain'] * 1e3:.0f} ms plain)")
    assert ratio < 1.05
