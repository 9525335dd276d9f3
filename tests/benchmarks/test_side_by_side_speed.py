"""A training step of 20 small translators, side by side and one by one, on one core; vmap has no rule for LSTMs."""

import statistics
import time

import pytest
import torch
from transformers import PreTrainedModel

from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig, LuongSeq2SeqForConditionalGeneration
from hf_nmt_interp.studies.side_by_side import StackedTranslators, losses

MODELS, LENGTH, WORDS = 20, 40, 60
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1, "bidirectional": False, "dropout": 0.0}


def new_models(hidden_size: int) -> list[PreTrainedModel]:
    sizes = {"vocab_size": WORDS + 1, "embedding_size": hidden_size, "hidden_size": hidden_size}
    ids = {"decoder_start_token_id": WORDS, "pad_token_id": WORDS, "eos_token_id": None, "use_cache": False}
    config = LuongSeq2SeqConfig(**sizes, **ids, **ONE_LAYER)
    return [LuongSeq2SeqForConditionalGeneration(config) for _ in range(MODELS)]


def side_by_side(models, source, target):
    stack = StackedTranslators(models)
    optimizer = torch.optim.Adam(stack.trained())

    def step():
        optimizer.zero_grad()
        losses(stack(source, target)[0], target).sum().backward()
        optimizer.step()

    return step


def one_by_one(models, source, target):
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]

    def step():
        for model, optimizer, x, y in zip(models, optimizers, source, target, strict=True):
            optimizer.zero_grad()
            model(x, labels=y).loss.backward()
            optimizer.step()

    return step


@pytest.mark.benchmark
@pytest.mark.parametrize(("hidden_size", "batch"), [(32, 8), (64, 32), (128, 64)])
def test_time_of_a_step(hidden_size, batch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        source = torch.randint(WORDS, (MODELS, batch, LENGTH))
        kinds = [side_by_side, one_by_one]
        steps = {kind.__name__: kind(new_models(hidden_size), source, source.clone()) for kind in kinds}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(6):  # the first one warms up
            for name, step in steps.items():
                start = time.process_time()
                step()
                times[name].append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    found = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    ratio = found["one_by_one"] / found["side_by_side"]
    print(f"\n{MODELS} models of {hidden_size} units, batches of {batch}: {found['side_by_side']:.3f} s side by side,")
    print(f"{found['one_by_one']:.3f} s one by one, {ratio:.2f} times as much")
    assert ratio > 0.8  # no dearer; how much cheaper depends on the sizes
