"""Training of an alignment head by the script, end to end on a made-up language."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, MarianMTModel

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.aligned import AlignedMarianMTModel
from tests.trainer_scripts.every_trainer import call
from trainer_scripts import train_alignment


def test_train_resume_and_load(start, tmp_path, monkeypatch):
    folder, data = start
    settings = {"tokens_per_batch": 200, "save_steps": 3, "teacher": "attention:layer=0", "model": folder}
    settings |= {"reverse_model": folder, "reverse_teacher": "attention:layer=1"}
    for steps in (3, 6):  # the second run resumes the first
        call(monkeypatch, train_alignment, output_dir=tmp_path, **data, **settings, max_steps=steps)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["train_steps"] == 6
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert isinstance(model, AlignedMarianMTModel)
    plain = MarianMTModel.from_pretrained(folder)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in plain.state_dict().items())
    # and again with the head that was trained as teacher
    again = {"model": tmp_path, "output_dir": tmp_path / "again", "train": data["train"], "max_steps": 1}
    call(monkeypatch, train_alignment, **again)


@pytest.mark.parametrize(
    ("teacher", "layer"),
    [("shifted_attention:layer=1", 0), ("shifted_attention:layer=-1", 0), ("shifted_attention:layer=0", 1)]
    + [("attention:layer=1", 1), ("rollout", 1)],
)
def test_a_new_head_reads_the_layer_below_a_teacher_that_aligns_what_is_read(
    start, tmp_path, monkeypatch, teacher, layer
):
    folder, data = start
    options = {"model": folder, "train": data["train"], "teacher": teacher, "max_steps": 1, "learning_rate": 1e-9}
    call(monkeypatch, train_alignment, output_dir=tmp_path, **options)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert model.config.alignment_layer == layer  # 1 is the middle of two
    above = model.get_decoder().layers[1].encoder_attn
    assert torch.allclose(model.alignment_head.q_proj.weight, above.q_proj.weight, atol=1e-5) == (layer == 0)


def test_pairs_that_training_leaves_out_do_not_choose_the_layer(start, tmp_path, monkeypatch):
    folder, data = start
    for file in (new := [tmp_path / Path(old).name for old in data["train"]]):
        text = Path(data["train"][new.index(file)]).read_text(encoding="utf-8")
        file.write_text("a " * 2000 + "\n\n" + text, encoding="utf-8")
    options = {"model": folder, "train": new, "teacher": "shifted_attention:layer=1", "max_steps": 1}
    call(monkeypatch, train_alignment, output_dir=tmp_path / "run", **options)
    assert json.loads((tmp_path / "run/config.json").read_text())["alignment_layer"] == 0


def test_guided_training_reports_scores_before_and_after(start, tmp_path, monkeypatch):
    folder, data = start
    options = {"model": folder, "guided_layer": 0, "guided_head": 1, "teacher": "attention:layer=0", "max_steps": 2}
    call(monkeypatch, train_alignment, output_dir=tmp_path, **data, **options, tokens_per_batch=200)
    results = json.loads((tmp_path / "results.json").read_text())
    assert {"before_test_bleu", "test_bleu"} <= results.keys()
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(model) is MarianMTModel
    assert (model.config.alignment["layer"], model.config.alignment["head"]) == (0, 1)
    assert "| alignment head | head 1 of cross-attention layer 0 |" in (tmp_path / "README.md").read_text()


def test_links_of_a_file(start, tmp_path, monkeypatch):
    folder, data = start
    number = Path(data["train"][0]).read_text(encoding="utf-8").count("\n")
    (tmp_path / "links").write_text("0-0\n" * number)
    options = {"model": folder, "train": data["train"], "links": tmp_path / "links", "max_steps": 1}
    call(monkeypatch, train_alignment, output_dir=tmp_path / "run", **options)
    assert set((tmp_path / "run/links.txt").read_text().split("\n")[0].split()) >= {"0-0"}
    (tmp_path / "links").write_text("0-0\n" * 3)
    with pytest.raises(InputError, match="links: 3 lines, but there are more pairs"):
        call(monkeypatch, train_alignment, output_dir=tmp_path / "short", **options)


def test_wrong_arguments_are_named(start, tmp_path, monkeypatch):
    folder, data = start
    options = {"output_dir": tmp_path, "train": data["train"], "model": folder, "max_steps": 1}
    for wrong, text in (
        ({"alignment_layer": 9}, "alignment_layer=9 is out of range"),
        ({"extraction": "most"}, "extraction: 'most' is not one of"),
        ({"heuristic": "grow"}, "heuristic: 'grow' is not one of"),
        ({"reverse_model": tmp_path / "none"}, "--reverse_model"),
        ({"links": tmp_path / "none", "teacher": "attention"}, "--teacher: cannot be combined with --links"),
    ):
        with pytest.raises(InputError, match=text):
            call(monkeypatch, train_alignment, **options, **wrong)


def test_every_argument_has_a_help_text():
    for argument in fields(train_alignment.ModelArguments):
        assert argument.metadata["help"].endswith(".")
