"""Calibrated training by the script, end to end on a made-up language."""

import json
from dataclasses import fields

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, MarianMTModel, set_seed

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.calibrated import CalibratedMarianMTModel
from hf_nmt_interp.training.calibration import load_calibrated
from tests.trainer_scripts.every_trainer import call
from trainer_scripts import train_calibrated


def test_train_resume_and_load(start, tmp_path, monkeypatch):
    folder, data = start
    settings = {"tokens_per_batch": 200, "save_steps": 3, "fusion": "anneal", "anneal_steps": 10, "model": folder}
    for steps in (3, 6):  # the second run resumes the first
        call(monkeypatch, train_calibrated, output_dir=tmp_path, **data, **settings, max_steps=steps)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["train_steps"] == 6
    assert "test_bleu" in results
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert isinstance(model, CalibratedMarianMTModel)
    assert (model.config.fusion, model.config.mask_alpha, model.fusions()[0].step.item()) == ("anneal", 0.1, 6)


def test_from_scratch_begins_where_the_plain_model_of_the_seed_does(start):
    folder, _ = start
    config = MarianMTModel.from_pretrained(folder).config
    set_seed(3)
    expected = MarianMTModel(config).state_dict()
    set_seed(3)
    model = load_calibrated(str(folder), from_scratch=True, fusion="gate")
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert model.generation_config.pad_token_id == config.pad_token_id


def test_wrong_arguments_are_named(start, tmp_path, monkeypatch):
    folder, data = start
    with pytest.raises(InputError, match="fusion='mean' is not one of fixed, fixed_unnormalised, anneal, gate"):
        call(monkeypatch, train_calibrated, output_dir=tmp_path, train=data["train"], model=folder, fusion="mean")


def test_every_argument_has_a_help_text():
    for argument in fields(train_calibrated.ModelArguments):
        assert argument.metadata["help"].endswith(".")
