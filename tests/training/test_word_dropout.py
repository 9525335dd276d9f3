"""Word dropout: what it replaces and what it leaves, seeds, restarts, every trainer's evaluation without it."""

from functools import partial

import pytest
import torch

from hf_nmt_interp.decoding.batch import decoder_inputs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.batching import TokenBatches, pad_batch
from hf_nmt_interp.training.calibration import CalibrationConfig, CalibrationTrainer
from hf_nmt_interp.training.l0 import L0Config, L0Trainer
from hf_nmt_interp.training.mrt import MRTConfig, MRTTrainer
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer
from hf_nmt_interp.training.word_dropout import WordDropout, reserved_ids
from tests.calibrated_models import tiny_calibrated
from tests.tiny_models import tiny_model
from tests.training.tiny_trainers import EXAMPLES, Kill, logged, make_trainer, tiny_gated

TEXTS = ["The old baker opens his shop.", "A dog sleeps."]


@pytest.fixture(scope="module")
def examples_of(tokenizer_of):
    def get(tokenizer):
        if hasattr(tokenizer, "tgt_lang") and tokenizer.tgt_lang is None:
            tokenizer.tgt_lang = tokenizer.src_lang
        rows = tokenizer(TEXTS, text_target=TEXTS)
        return [{"input_ids": i, "labels": t} for i, t in zip(rows["input_ids"], rows["labels"], strict=True)] * 50

    return get


@pytest.mark.parametrize("kind", ["marian", "nllb", "m2m100", "mbart", "t5"])
@pytest.mark.parametrize("replacement", ["random", "unk"])
def test_only_words_are_replaced_at_the_rate_asked_for(translator_of, examples_of, kind, replacement):
    model, tokenizer = translator_of(kind)
    examples = examples_of(tokenizer)
    plain = pad_batch(examples, tokenizer.pad_token_id)
    noisy = WordDropout(
        partial(pad_batch, pad_id=tokenizer.pad_token_id),
        model,
        tokenizer,
        source=0.3,
        target=0.1,
        replacement=replacement,
    )(examples)
    special = torch.tensor(sorted(reserved_ids(tokenizer)))
    assert torch.equal(noisy["labels"], plain["labels"])
    assert torch.equal(noisy["attention_mask"], plain["attention_mask"])
    shifted = decoder_inputs(model, plain["labels"])
    for before, after, rate in (
        (plain["input_ids"], noisy["input_ids"], 0.3),
        (shifted, noisy["decoder_input_ids"], 0.1),
    ):
        changed, is_special = before != after, torch.isin(before, special)
        assert not changed[is_special].any()
        assert changed[~is_special].float().mean().item() == pytest.approx(rate, abs=0.05)
        drawn = after[changed]
        if replacement == "unk":
            assert (drawn == tokenizer.unk_token_id).all()
        else:
            assert not torch.isin(drawn, special).any()
            assert len(set(drawn.tolist())) > 20


def test_a_side_without_dropout_is_left_alone(translator_of, examples_of):
    model, tokenizer = translator_of("marian")
    collate = partial(pad_batch, pad_id=tokenizer.pad_token_id)
    examples = examples_of(tokenizer)
    only_source = WordDropout(collate, model, tokenizer, source=0.5)(examples)
    assert "decoder_input_ids" not in only_source
    only_target = WordDropout(collate, model, tokenizer, target=0.5)(examples)
    assert torch.equal(only_target["input_ids"], collate(examples)["input_ids"])


def test_noise_depends_on_seed_and_place_not_on_what_came_before(translator_of, examples_of):
    model, tokenizer = translator_of("marian")
    collate = partial(pad_batch, pad_id=tokenizer.pad_token_id)

    def read(seed, epoch=0, skip=0):
        batches = TokenBatches(
            examples_of(tokenizer), WordDropout(collate, model, tokenizer, source=0.5), 60, seed=seed
        )
        batches.set_epoch(epoch)
        return [batch["input_ids"].tolist() for batch in batches][skip:]

    assert read(1) == read(1)
    assert read(1, skip=3) == read(1)[3:]
    assert read(1) != read(1, epoch=1)
    first = WordDropout(collate, model, tokenizer, source=0.5, seed=3)(examples_of(tokenizer))
    again = WordDropout(collate, model, tokenizer, source=0.5, seed=3)(examples_of(tokenizer))
    assert torch.equal(first["input_ids"], again["input_ids"])


class Digits:
    """As much of a tokenizer as word dropout needs, for the random examples of the trainers' tests."""

    all_special_ids, unk_token_id = (0, 1, 39), 1

    def __len__(self):
        return 40

    def batch_decode(self, rows, skip_special_tokens=True):
        return [" ".join(map(str, row)) for row in rows]


def noisy_trainer(folder, **options):
    trainer = make_trainer(folder, **options)
    trainer.train_collator = WordDropout(trainer.data_collator, trainer.model, Digits(), source=0.2, target=0.4)
    return trainer


def test_training_reads_it_and_goes_on_exactly(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 4, "max_steps": 6}
    plain, whole = make_trainer(tmp_path / "plain", **options), noisy_trainer(tmp_path / "whole", **options)
    plain.train()
    whole.train()
    assert logged(plain) != pytest.approx(logged(whole), rel=1e-3)
    killed = noisy_trainer(tmp_path / "killed", callbacks=[Kill(5)], **options)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed = noisy_trainer(tmp_path / "killed", seed=5, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "killed" / "checkpoint-4"))
    assert logged(resumed) == pytest.approx(logged(whole), rel=1e-6)


STILL = {"dropout": 0.0}
TRAINERS = {
    "translation": (TranslationTrainer, TranslationConfig, lambda: tiny_model("marian", **STILL), {}),
    "lstm": (TranslationTrainer, TranslationConfig, lambda: tiny_model("lstm", **STILL), {}),
    "conv": (TranslationTrainer, TranslationConfig, lambda: tiny_model("conv", **STILL), {}),
    "l0": (L0Trainer, L0Config, tiny_gated, {}),
    "calibration": (CalibrationTrainer, CalibrationConfig, lambda: tiny_calibrated(**STILL), {}),
    "mrt": (MRTTrainer, MRTConfig, lambda: tiny_model("marian"), {"cross_entropy": 1.0, "candidates": 3}),
}


@pytest.mark.parametrize("kind", TRAINERS)
def test_every_trainer_reads_it_and_evaluates_without_it(tmp_path, kind):
    trainer_class, make_config, make_model, settings = TRAINERS[kind]
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "save_strategy": "no"}
    evaluated, trained = [], []
    for source, target in ((0.0, 0.0), (0.0, 0.0), (0.5, 0.0), (0.0, 0.5)):
        model = make_model()
        config = make_config(str(tmp_path), max_steps=1, predict_with_generate=False, **quiet, **settings)
        clean = partial(pad_batch, pad_id=model.config.pad_token_id)
        noisy = WordDropout(clean, model, Digits(), source=source, target=target)
        data = {"train_dataset": EXAMPLES, "eval_dataset": EXAMPLES[:5], "data_collator": noisy}
        trainer = trainer_class(model=model, args=config, processing_class=Digits(), **data)
        evaluated.append(trainer.evaluate()["eval_loss"])
        trainer.train()
        trained += logged(trainer).values()
    assert len(set(evaluated)) == 1
    assert trained[0] == trained[1]  # nothing else is random
    assert all(abs(loss - trained[0]) > 1e-5 for loss in trained[2:]), trained
    assert trained[2] != trained[3]


def test_wrong_settings_are_refused():
    with pytest.raises(InputError, match=r"source: 1.0 must be at least 0 and below 1"):
        WordDropout(pad_batch, None, Digits(), source=1.0)
    with pytest.raises(InputError, match="replacement: 'mask' is not one of random, unk"):
        WordDropout(pad_batch, None, Digits(), replacement="mask")
