"""What `ContributionCallback` adds to a training of the box translator's size: CPU time of one thread in one run."""

import time
from functools import partial

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.callbacks import ContributionCallback
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer
from tests.made_up_corpus import made_up_pairs

pytestmark = pytest.mark.usefixtures("one_thread")

DENSE = (0, 10, 20, 50, 100, 200, 500, 1000)  # what the documentation shows, for a training of 1,000 steps
STEPS, MEASURED = 4, (0, 2, 4)


class Timed(ContributionCallback):
    """Sums up the CPU seconds of its measurements."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seconds = []

    def on_step_end(self, *args, **kwargs):
        start, before = time.process_time(), len(self._rows)
        super().on_step_end(*args, **kwargs)
        if len(self._rows) > before:
            self.seconds.append(time.process_time() - start)


@pytest.mark.benchmark
def test_a_run_with_it_costs_at_most_5_percent_more(tmp_path):
    model, tokenizer = hni.load_demo("en-de")
    pairs = made_up_pairs(1000)
    rows = tokenizer([s for s, _ in pairs], text_target=[t for _, t in pairs])
    examples = [{"input_ids": s, "labels": t} for s, t in zip(rows["input_ids"], rows["labels"], strict=True)]
    callback = Timed(tokenizer, *zip(*pairs, strict=True), steps=MEASURED)
    options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    trainer = TranslationTrainer(
        model=model.float(),
        args=TranslationConfig(str(tmp_path), tokens_per_batch=2400, max_steps=STEPS, **options),
        train_dataset=examples,
        data_collator=partial(pad_batch, pad_id=tokenizer.pad_token_id),
        callbacks=[callback],
    )
    start = time.process_time()
    trainer.train()
    step = (time.process_time() - start - sum(callback.seconds)) / STEPS
    assert len(callback.seconds) == len(MEASURED)
    first, *later = callback.seconds
    cost = first + sum(later) / len(later) * (len(DENSE) - 1)
    ratio = 1 + cost / (step * DENSE[-1])
    shown = ", ".join(f"{second:.2f}" for second in callback.seconds)
    print(f"\nmeasurements of {shown} s, a step of 2,400 tokens {step:.2f} s; ratio of 1,000 steps {ratio:.4f}")
    assert ratio < 1.05
