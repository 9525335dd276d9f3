"""Minimum risk training by the script, end to end on a made-up language, and word dropout by the other script."""

import json
from dataclasses import fields

import pytest
from transformers import AutoModelForSeq2SeqLM

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.contribution_study import ContributionStudy
from tests.trainer_scripts.every_trainer import call, launch
from trainer_scripts import train_mrt, train_translation

SMALL = {"candidates": 4, "tokens_per_batch": 60, "max_steps": 4, "save_steps": 2, "logging_steps": 1}


def read_log(folder, step):
    state = json.loads((folder / f"checkpoint-{step}" / "trainer_state.json").read_text())
    return [row for row in state["log_history"] if "loss" in row]


def test_a_run_and_its_results(start, tmp_path, monkeypatch):
    folder, data = start
    for _ in range(2):  # the second run finds that it has ended
        call(monkeypatch, train_mrt, model=folder, output_dir=tmp_path, **data, **SMALL, risk="chrf")
        results = json.loads((tmp_path / "results.json").read_text())
        assert results["train_steps"] == 4
        assert results["before"]["test_chrf"] >= 0
        assert "test_bleu" in results
    log = read_log(tmp_path, 4)
    assert [row["step"] for row in log] == [1, 2, 3, 4]
    assert all(-1 <= row["loss"] <= 0 and row["unique_candidates"] > 1 for row in log)
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path).config.model_type == "marian"


@pytest.mark.slow
def test_two_processes(start, tmp_path):
    folder, data = start
    words = []
    options = {"model": folder, "output_dir": tmp_path, "train": data["train"], "report_to": "none", "max_length": 30}
    for name, value in (options | SMALL).items():
        words += [f"--{name}", *(value if isinstance(value, list) else [value])]
    launch("--num_processes", 2, train_mrt.__file__, *words)
    assert (tmp_path / "checkpoint-4" / "rng_state_1.pth").is_file()
    assert len(read_log(tmp_path, 4)) == 4


def test_word_dropout_and_contributions_in_training(start, tmp_path, monkeypatch):
    folder, data = start
    losses = {}
    for rate in (0.0, 0.5):
        out = tmp_path / str(rate)
        options = {"model": folder, "train": data["train"], "valid": data["test"], "target_word_dropout": rate}
        call(
            monkeypatch,
            train_translation,
            output_dir=out,
            max_steps=2,
            save_steps=2,
            logging_steps=1,
            contribution_steps=[0, 2],
            **options,
        )
        losses[rate] = [row["loss"] for row in read_log(out, 2)]
        assert ContributionStudy.load(out / "contributions.csv").names("model") == ["checkpoint-0", "checkpoint-2"]
    assert len(losses[0.0]) == 2
    assert losses[0.0] != losses[0.5]


def test_a_new_model_with_the_tokenizer_of_another(start, tmp_path, monkeypatch):
    folder, data = start
    sizes = {"d_model": 16, "layers": 1, "heads": 2, "ffn_dim": 16, "max_steps": 1, "tokens_per_batch": 100}
    call(monkeypatch, train_translation, output_dir=tmp_path, train=data["train"], tokenizer=folder, **sizes)
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path).config.vocab_size == 70
    assert (tmp_path / "vocab.json").read_text() == (folder / "vocab.json").read_text()


def test_wrong_arguments_are_named(start, tmp_path, monkeypatch):
    _, data = start
    with pytest.raises(InputError, match="risk: 'comet' is not one of bleu"):
        call(monkeypatch, train_mrt, output_dir=tmp_path, train=data["train"], model=start[0], risk="comet")
    with pytest.raises(InputError, match=r"--contribution_steps: \[5\] need --valid"):
        call(monkeypatch, train_mrt, output_dir=tmp_path, train=data["train"], model=start[0], contribution_steps=5)


def test_every_argument_has_a_help_text():
    for argument in fields(train_mrt.ModelArguments):
        assert argument.metadata["help"].endswith(".")
