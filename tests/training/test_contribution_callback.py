"""ContributionCallback: chosen steps, the log, the file, a training that it does not disturb."""

from functools import partial
from pathlib import Path

import pytest
import torch

from hf_nmt_interp.studies.contribution_study import ContributionStudy
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.callbacks import ContributionCallback
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer
from tests.made_up_corpus import BY_LENGTH as SOURCES
from tests.made_up_corpus import BY_LENGTH_TARGETS as TARGETS


def make_trainer(folder, translator_of, callbacks, **options):
    model, tokenizer = translator_of("marian")
    model.config.dropout = 0.3
    rows = tokenizer(SOURCES, text_target=TARGETS)
    examples = [{"input_ids": s, "labels": t} for s, t in zip(rows["input_ids"], rows["labels"], strict=True)]
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "save_steps": 2}
    config = TranslationConfig(str(folder), tokens_per_batch=30, max_steps=4, **quiet | options)
    collate = partial(pad_batch, pad_id=tokenizer.pad_token_id)
    return TranslationTrainer(
        model=model, args=config, train_dataset=examples, data_collator=collate, callbacks=callbacks
    )


def test_at_chosen_steps_and_after_a_restart(tmp_path, translator_of):
    _, tokenizer = translator_of("marian")
    callback = ContributionCallback(tokenizer, SOURCES, TARGETS, steps=[0, 2, 3])
    trainer = make_trainer(tmp_path, translator_of, [callback])
    trainer.train()
    figures = {row["step"]: row for row in trainer.state.log_history if "contributions/random/source_entropy" in row}
    assert list(figures) == [0, 2, 3]
    assert 0 < figures[2]["contributions/reference/source_contribution"] < 1
    assert "contributions/reference/accuracy" in figures[2]
    whole = (tmp_path / "contributions.csv").read_text()
    assert ContributionStudy.load(tmp_path / "contributions.csv").names("model") == [
        f"checkpoint-{s}" for s in (0, 2, 3)
    ]

    plain = make_trainer(tmp_path / "plain", translator_of, [])
    plain.train()  # the same weights: neither the model nor the random numbers were touched
    torch.testing.assert_close(plain.model.state_dict(), trainer.model.state_dict(), rtol=0, atol=0)

    again = make_trainer(tmp_path, translator_of, [ContributionCallback(tokenizer, SOURCES, TARGETS, steps=[0, 2, 3])])
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert (tmp_path / "contributions.csv").read_text() == whole


def test_every_so_many_steps_by_the_trainer_s_own_log(tmp_path, translator_of):
    _, tokenizer = translator_of("marian")
    found = []
    callback = ContributionCallback(tokenizer, SOURCES, TARGETS, steps=2, log=found.append, prefixes=["reference"])
    make_trainer(tmp_path, translator_of, [callback]).train()
    assert len(found) == 3
    assert set(found[0]) == {
        f"contributions/reference/{name}"
        for name in ("source_contribution", "source_part", "source_entropy", "prefix_entropy", "accuracy")
    }


def test_a_kill_while_the_file_is_written_leaves_the_one_before(tmp_path, translator_of, monkeypatch):
    _, tokenizer = translator_of("marian")

    def make():
        return make_trainer(tmp_path, translator_of, [ContributionCallback(tokenizer, SOURCES, TARGETS, steps=[0, 3])])

    def killed(self, text, **options):
        with self.open("w") as file:
            file.write(text[:-30])
        raise KeyboardInterrupt

    make().train()
    whole = (tmp_path / "contributions.csv").read_text()
    monkeypatch.setattr(Path, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        make().train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    monkeypatch.undo()
    make().train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert (tmp_path / "contributions.csv").read_text() == whole
