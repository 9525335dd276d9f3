"""Pruning and training from scratch by the scripts, end to end on a made-up language.

Also for training/pruning.py.
"""

import json
from dataclasses import fields

import pytest
from transformers import AutoModelForSeq2SeqLM

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import GatedMarianMTModel
from hf_nmt_interp.training.new_models import sparse_config
from tests.tiny_models import tiny_model
from tests.trainer_scripts.every_trainer import call
from trainer_scripts import train_l0, train_translation


def test_prune_then_train_the_same_architecture_from_scratch(start, tmp_path, monkeypatch, capsys):
    folder, data = start
    out = tmp_path / "l0"
    settings = {"tokens_per_batch": 200, "max_steps": 10, "save_steps": 5, "learning_rate": 1e-3, "penalty": 1.0}
    gates = {"gated_attentions": "encoder", "freeze": "decoder", "gate_learning_rate": 1.0, "penalty_warmup_steps": 0}
    for _ in range(2):  # the second run finds that it has ended
        call(monkeypatch, train_l0, model=folder, output_dir=out, **data, **settings, **gates)
        results = json.loads((out / "results.json").read_text())
        assert results["train_steps"] == 10
        assert (results["before"]["heads"], results["pruned"]["heads"]) == ("4/4/4", "0/4/4")
        assert (results["penalty"], results["kept_heads"]["encoder"]) == (1.0, [[], []])
        assert results["pruned"]["parameters"] < results["before"]["parameters"]
        assert "0/4/4" in capsys.readouterr().out
    assert "test_loss" in results["before"]
    assert "test_bleu" in results["pruned"]
    assert (out / "gates.csv").read_text().count("\n") == 1 + 3 * 4  # steps 0, 5 and 10
    pruned = AutoModelForSeq2SeqLM.from_pretrained(out / "pruned")
    assert isinstance(pruned, GatedMarianMTModel)

    scratch = tmp_path / "scratch"
    sizes = {"vocab_size": 68, "heads": out / "pruned", "tokens_per_batch": 200, "max_steps": 1}
    call(monkeypatch, train_translation, output_dir=scratch, train=data["train"], **sizes)
    new = AutoModelForSeq2SeqLM.from_pretrained(scratch)
    assert new.kept_heads() == pruned.kept_heads()
    assert new.config.gated_attentions == []
    assert {name: p.shape for name, p in new.named_parameters() if "layers" in name} == {
        name: p.shape for name, p in pruned.named_parameters() if "layers" in name
    }


def test_wrong_arguments_are_named(start, tmp_path, monkeypatch):
    _, data = start
    with pytest.raises(InputError, match="--heads: 'nowhere' is neither a number nor a folder"):
        call(monkeypatch, train_translation, output_dir=tmp_path, train=data["train"], heads="nowhere", vocab_size=70)
    tiny_model("bart").save_pretrained(tmp_path / "bart")
    with pytest.raises(InputError, match="of the family 'bart'; only Marian is supported"):
        sparse_config(train_translation.ModelArguments(heads=str(tmp_path / "bart")))
    with pytest.raises(InputError, match="'demo:en-fr' is not a bundled translator"):
        call(monkeypatch, train_l0, output_dir=tmp_path, train=data["train"], model="demo:en-fr")


def test_every_argument_has_a_help_text():
    for argument in fields(train_l0.ModelArguments):
        assert argument.metadata["help"].endswith(".")
