"""The trainer: its loss, schedule, averaging, and that a stopped run resumes as if it had never stopped.

Also for training/callbacks.py.
"""

import json
from dataclasses import fields

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.batching import TokenBatches
from hf_nmt_interp.training.callbacks import ContributionCallback, Stopwatch
from hf_nmt_interp.training.checkpoints import average_checkpoints, list_checkpoints
from hf_nmt_interp.training.losses import label_smoothed_cross_entropy
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer, noam_rate
from tests.reference.losses import noam
from tests.tiny_models import tiny_model
from tests.training.tiny_trainers import EXAMPLES, STREAM, Kill, logged, make_trainer


def batches_of(trainer, steps):
    batches = TokenBatches(trainer.train_dataset, trainer.data_collator, trainer.args.tokens_per_batch, seed=42)
    return list(batches)[:steps]


@pytest.mark.parametrize("step", [1, 2, 99, 100, 101, 5000])
def test_noam_rate_is_the_formula(step):
    assert noam_rate(step, 2.0, 100, 256) == pytest.approx(noam(step, 2.0, 100, 256))


def test_logged_rates_are_the_schedule_also_after_a_restart(tmp_path):
    expected = {step: pytest.approx(noam(step, 0.5, 4, 16)) for step in range(1, 9)}
    trainer = make_trainer(tmp_path, save_strategy="steps", save_steps=3)
    trainer.train()
    assert logged(trainer, "learning_rate") == expected
    again = make_trainer(tmp_path, save_strategy="steps", save_steps=3)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert logged(again, "learning_rate") == expected
    trainer.train()  # a second training starts the schedule again
    assert logged(trainer, "learning_rate") == expected


def test_without_noam_the_schedule_is_that_of_transformers(tmp_path):
    trainer = make_trainer(tmp_path, noam_scale=0.0, warmup_steps=0, learning_rate=0.1, max_steps=2)
    trainer.train()
    assert logged(trainer, "learning_rate") == {1: 0.1, 2: pytest.approx(0.05)}


@pytest.mark.parametrize(
    ("family", "fused"), [("marian", True), ("marian", False), ("bart", True), ("m2m100", True), ("t5", True)]
)
def test_loss_of_a_step_is_the_mean_over_its_target_tokens(tmp_path, family, fused):
    options = {"gradient_accumulation_steps": 3, "label_smoothing_factor": 0.1, "fused_loss": fused, "max_steps": 1}
    trainer = make_trainer(tmp_path, family=family, warmup_steps=1000, **options)
    total = tokens = 0.0
    model = tiny_model(family, torch.float64)
    for batch in batches_of(trainer, 3):
        total += label_smoothed_cross_entropy(model(**batch).logits, batch["labels"], 0.1)
        tokens += batch["labels"].ne(-100).sum()
    (total / tokens).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.requires_grad])
    trainer.train()
    assert logged(trainer)[1] == pytest.approx((total / tokens).item(), rel=1e-5)
    assert logged(trainer, "grad_norm")[1] == pytest.approx(norm.item(), rel=1e-4)


def test_samples_are_sentences(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=4, gradient_accumulation_steps=2)
    sentences = sum(len(batch["labels"]) for batch in batches_of(trainer, 8))
    metrics = trainer.train().metrics
    assert metrics["train_samples_per_second"] == pytest.approx(sentences / metrics["train_runtime"], rel=1e-3)
    assert logged(trainer, "train_samples_per_second") == {4: metrics["train_samples_per_second"]}


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_missing_reporters_are_named_with_their_extra(tmp_path, monkeypatch, name):
    monkeypatch.setattr(f"transformers.integrations.is_{name}_available", lambda: False)
    remedy = rf"report_to: '{name}' is not installed; pip install -c constraints.txt -e \"\.\[{name}\]\""
    with pytest.raises(InputError, match=remedy):
        TranslationConfig(str(tmp_path), report_to=name)


@pytest.mark.parametrize("generate", [True, False])
def test_evaluation_loss_is_without_smoothing(tmp_path, generate):
    options = {"predict_with_generate": generate, "label_smoothing_factor": 0.5, "generation_max_length": 6}
    trainer = make_trainer(tmp_path, **options)
    batch = trainer.data_collator(trainer.eval_dataset)
    with torch.no_grad():
        logits = trainer.model(**batch).logits
    expected = label_smoothed_cross_entropy(logits, batch["labels"]) / batch["labels"].ne(-100).sum()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("train", "options", "killed", "resumed"),
    [
        (EXAMPLES, {"save_steps": 4}, 7, 4),  # within an epoch
        (EXAMPLES, {"gradient_accumulation_steps": 3, "save_steps": 5}, 6, 5),  # 14 = 4 * 3 + 2: between epochs
        (EXAMPLES, {"gradient_accumulation_steps": 3, "save_steps": 7}, 9, 7),  # within the second
        (STREAM, {"gradient_accumulation_steps": 2, "save_steps": 8}, 10, 8),  # within the second pass
    ],
)
def test_a_killed_run_goes_on_exactly(tmp_path, train, options, killed, resumed):
    options = {"save_strategy": "steps", "max_steps": 12, "dropout": 0.2, "label_smoothing_factor": 0.1} | options
    whole = make_trainer(tmp_path / "whole", train, **options)
    whole.train()
    first = make_trainer(tmp_path / "killed", train, callbacks=[Kill(killed)], **options)
    with pytest.raises(KeyboardInterrupt):
        first.train()
    checkpoint = list_checkpoints(tmp_path / "killed")[-1]
    assert checkpoint.name == f"checkpoint-{resumed}"
    second = make_trainer(tmp_path / "killed", train, seed=5, **options)  # its own weights do not matter
    second.train(resume_from_checkpoint=str(checkpoint))
    assert logged(second) == pytest.approx(logged(whole), rel=1e-6)
    assert len(set(logged(whole).values())) == 12
    for name, weight in whole.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], weight, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("moment", ["_save", "_save_optimizer_and_scheduler", "_save_rng_state"])
def test_a_checkpoint_has_its_name_when_it_is_whole(tmp_path, monkeypatch, moment):
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "save_total_limit": 1}
    make_trainer(tmp_path / "whole", **options).train()
    before = getattr(TranslationTrainer, moment)

    def killed(trainer, *args, **kwargs):
        before(trainer, *args, **kwargs)
        if trainer.state.global_step == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(TranslationTrainer, moment, killed)
    with pytest.raises(KeyboardInterrupt):
        make_trainer(tmp_path / "killed", **options).train()
    monkeypatch.undo()
    assert list((tmp_path / "killed" / "unfinished" / "checkpoint-4").iterdir())
    assert [path.name for path in list_checkpoints(tmp_path / "killed", complete=False)] == ["checkpoint-2"]
    make_trainer(tmp_path / "killed", seed=5, **options).train(resume_from_checkpoint=True)  # as transformers finds it
    for folder in (tmp_path / "whole", tmp_path / "killed"):
        assert [path.name for path in folder.iterdir()] == ["checkpoint-4"]
    weights, expected = (
        load_file(tmp_path / run / "checkpoint-4" / "model.safetensors") for run in ("killed", "whole")
    )
    torch.testing.assert_close(weights, expected, rtol=0, atol=0)


def test_the_best_checkpoint_is_found_under_its_name(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    options |= {"predict_with_generate": False, "load_best_model_at_end": True, "save_total_limit": 2}
    trainer = make_trainer(tmp_path, **options, metric_for_best_model="eval_loss", greater_is_better=True)
    trainer.train()
    assert trainer.state.best_global_step == 2
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-2", "checkpoint-8"]
    for step in (2, 8):
        state = json.loads((tmp_path / f"checkpoint-{step}" / "trainer_state.json").read_text())
        assert state["best_model_checkpoint"] == str(tmp_path / "checkpoint-2")
    best = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    torch.testing.assert_close({name: trainer.model.state_dict()[name] for name in best}, best)


def test_a_finished_run_is_not_trained_further(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 8, "average_last": 1}
    trainer = make_trainer(tmp_path, **options)
    trainer.train()
    again = make_trainer(tmp_path, seed=5, **options)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert again.state.global_step == 8
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-8"]
    torch.testing.assert_close(again.model.state_dict(), trainer.model.state_dict())


def test_training_ends_with_the_mean_of_the_last_checkpoints(tmp_path, caplog):
    options = {"save_strategy": "steps", "save_steps": 3, "max_steps": 9}
    trainer = make_trainer(tmp_path, average_last=2, **options)
    trainer.train()
    expected = tiny_model("marian", seed=5)
    average_checkpoints(expected, [tmp_path / "checkpoint-6", tmp_path / "checkpoint-9"])
    torch.testing.assert_close(trainer.model.state_dict(), expected.state_dict())
    assert not caplog.records
    make_trainer(tmp_path / "few", average_last=5, **options).train()
    assert "average_last is 5, but there are only 3" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens_per_batch": 0}, "tokens_per_batch: 0 must be at least 1"),
        ({"noam_scale": -1.0}, r"noam_scale: -1.0 must be 0 \(off\) or positive"),
        ({"noam_scale": 1.0}, "warmup_steps: 0 must be at least 1 step for the Noam schedule"),
        ({"noam_scale": 1.0, "warmup_steps": 0.1}, "warmup_steps: 0.1 must be at least 1 step"),
        ({"label_smoothing_factor": 1.0}, "label_smoothing_factor: 1.0 must be at least 0 and below 1"),
        ({"average_last": -1}, "average_last: -1 must be 0"),
        ({"average_last": 2, "save_strategy": "no"}, "average_last: 2 needs checkpoints"),
        ({"average_last": 3, "save_total_limit": 2}, "save_total_limit: 2 is less than average_last=3"),
        (
            {"bf16_products": True, "bf16": True, "use_cpu": True},
            "bf16_products: True cannot be combined with autocast",
        ),
    ],
)
def test_wrong_settings_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        TranslationConfig(str(tmp_path), **options)


def test_every_setting_has_a_help_text():
    own = set(TranslationConfig.__annotations__)
    assert own
    for setting in fields(TranslationConfig):
        if setting.name in own:
            assert setting.metadata["help"].endswith("."), setting.name


def test_training_time_adds_up_over_restarts(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 4}
    first = Stopwatch()
    make_trainer(tmp_path, callbacks=[first], max_steps=4, **options).train()
    assert first.seconds > 0
    assert first.cpu_seconds > 0
    kept = json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text())["stateful_callbacks"]
    assert kept["Stopwatch"]["args"] == {"seconds": first.seconds, "cpu_seconds": first.cpu_seconds}
    second = Stopwatch()
    trainer = make_trainer(tmp_path, callbacks=[second, started := Started(second)], **options)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert started.seconds == first.seconds
    assert second.seconds > first.seconds
    assert second.cpu_seconds > first.cpu_seconds


class Started(TrainerCallback):
    """Reads a stopwatch at the start of training."""

    def __init__(self, stopwatch):
        self.stopwatch, self.seconds = stopwatch, None

    def on_train_begin(self, args, state, control, **kwargs):
        self.seconds = self.stopwatch.seconds


def test_what_needs_whole_weights_refuses_fsdp(tmp_path, sharding):
    make_trainer(tmp_path)
    with pytest.raises(InputError, match="FSDP, but average_last needs whole weights"):
        make_trainer(tmp_path, average_last=2, save_strategy="steps")
    with pytest.raises(InputError, match="FSDP, but ContributionCallback needs whole weights"):
        make_trainer(tmp_path, callbacks=[ContributionCallback(None, [], [])])
