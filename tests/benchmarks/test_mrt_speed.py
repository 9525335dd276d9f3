"""One step of minimum risk training against its parts done plainly, in one run, as CPU time of one thread."""

import time

import pytest
import torch
import torch.nn.functional as F

from hf_nmt_interp.decoding.sampling import encoded
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.candidates import pad_targets
from hf_nmt_interp.training.mrt import MRTConfig, MRTTrainer
from tests.benchmarks.base_size import base_model

pytestmark = pytest.mark.usefixtures("one_thread")

SOURCES, CANDIDATES, TOKENS = 4, 50, 24


class Speller:
    """A tokenizer that spells ids as numbers."""

    def batch_decode(self, rows, skip_special_tokens=True):
        return [" ".join(map(str, row)) for row in rows]


def seconds(run) -> float:
    """CPU seconds of this process: other work on the machine does not count."""
    start = time.process_time()
    run()
    return time.process_time() - start


@pytest.mark.benchmark
def test_a_step_costs_no_more_than_generate_and_a_plain_pass(tmp_path):
    model = base_model()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 32_000, (2, SOURCES, TOKENS), generator=generator)
    ids[..., -1] = 1
    batch = pad_batch([{"input_ids": s, "labels": t} for s, t in zip(*ids.tolist(), strict=True)], pad_id=0)
    options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "generation_max_length": TOKENS}
    config = MRTConfig(output_dir=str(tmp_path), candidates=CANDIDATES, **options)
    trainer = MRTTrainer(model, config, train_dataset=[], processing_class=Speller())
    source = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    drawn = []

    def generate() -> None:
        with torch.inference_mode():
            drawn.append(
                model.generate(
                    **source, do_sample=True, top_k=0, num_beams=1, num_return_sequences=CANDIDATES,
                    max_length=TOKENS + 1,
                )
            )  # fmt: skip

    def plain_pass() -> None:
        states = model.get_encoder()(**source).last_hidden_state.repeat_interleave(CANDIDATES, 0)
        mask = source["attention_mask"].repeat_interleave(CANDIDATES, 0)
        labels, shifted = pad_targets(drawn[0][:, 1:].tolist(), drawn[0][:, 0], pad_id=0)
        logits = model(encoder_outputs=encoded(states), attention_mask=mask, decoder_input_ids=shifted).logits
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()

    def step() -> None:
        trainer.compute_loss(model.train(), dict(batch)).backward()

    times = {"generate": seconds(generate), "plain pass": seconds(plain_pass)}
    model.zero_grad()
    times["step"] = seconds(step)
    ratio = times["step"] / (times["generate"] + times["plain pass"])
    print("\n" + ", ".join(f"{name} {found:.1f} s" for name, found in times.items()) + f"; ratio {ratio:.2f}")
    assert drawn[0].shape == (SOURCES * CANDIDATES, TOKENS + 1)
    assert ratio <= 1.1
