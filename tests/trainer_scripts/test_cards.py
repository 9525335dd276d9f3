"""Every training script writes a card: valid metadata, what is special of its model, and lines that run.

Also for training/cards.py.
"""

import shutil
import sys

import pytest
from huggingface_hub import ModelCard

from hf_nmt_interp.report.cards import model_card
from hf_nmt_interp.training.cards import hub_name
from tests.hub_server import hub_server
from tests.tiny_models import tiny_model
from tests.trainer_scripts.every_trainer import RUNS, command_line, options_of

SPECIAL = {
    "translation": "MarianMTModel, 1+1 layers",
    "seq2seq": "LuongSeq2SeqForConditionalGeneration",
    "l0": "| heads kept, by layer | encoder ",
    "mrt": "| risk that was minimised | chrf |",
    "calibrated": "| fusion of calibrated attention | gate |",
    "alignment": "| alignment head | reads decoder layer ",
}


@pytest.mark.parametrize("name", RUNS)
def test_every_trainer_writes_a_card_whose_lines_run(start, tmp_path, monkeypatch, capsys, name):
    model, data = start
    shutil.copytree(model, tmp_path / "box" / "en-de")
    monkeypatch.setattr("hf_nmt_interp.models.demo._HERE", tmp_path / "box")
    card = {"license": "cc0-1.0", "data_names": "made-up", "card_sentences": 3, "hub_token": "hf_secret"}
    options = options_of(
        name, "demo:en-de", **data, **card, max_steps=1, learning_rate=3e-4, output_dir=tmp_path / "run"
    )
    monkeypatch.setattr(sys, "argv", command_line(name, options))
    RUNS[name][0].main()
    folder = tmp_path / "run" / "pruned" if name == "l0" else tmp_path / "run"
    text = (folder / "README.md").read_text(encoding="utf-8")

    found = ModelCard(text).data
    assert (found.library_name, found.pipeline_tag, found.license) == ("transformers", "translation", "cc0-1.0")
    assert (found.datasets, found.language) == (["made-up"], ["en", "de"])
    assert found.base_model is None  # the box is not on the Hub
    assert ("| started from | demo-en-de |" in text) == ("model" in options)
    assert {score.metric_type for score in found.eval_results} == {"sacrebleu", "chrf"}
    assert SPECIAL[name] in text
    assert "| `learning_rate` | `0.0003` |" in text
    assert ("lrp has no rules" if name == "seq2seq" else "Source contribution by target position") in text
    assert f"python trainer_scripts/train_{name}.py" in text
    assert "hf_secret" not in text

    monkeypatch.chdir(folder.parent)
    snippet = text.split("## Use")[1].split("```python\n")[1].split("```")[0]
    capsys.readouterr()
    exec(compile(snippet, "card", "exec"), {})
    assert "AttributionResult('The cat is sleeping" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["translation", "l0"])
def test_what_a_script_pushes_has_its_card(start, tmp_path, monkeypatch, name):
    model, data = start
    hub = {"push_to_hub": True, "hub_model_id": "me/mine", "hub_strategy": "end"}
    data = data | {"card_sentences": 0, "base_model": "a/b"}
    training = {"output_dir": tmp_path / "run", "max_steps": 1}
    monkeypatch.setattr(sys, "argv", command_line(name, options_of(name, model, **data, **hub, **training)))
    with hub_server(monkeypatch) as server:
        RUNS[name][0].main()
    (commit,) = server.repos["me/mine"]["commits"]
    card = commit["README.md"].decode()
    assert "model-index" in card
    assert ModelCard(card).data.base_model == "a/b"
    assert SPECIAL[name] in card
    assert 'name = "me/mine"' in card
    if name == "l0":
        assert "me/mine" not in (tmp_path / "run/gated/README.md").read_text().split("## Use")[1]


def test_the_name_of_a_base_model_is_that_on_the_hub(tmp_path):
    gone = f"{tmp_path}/gone", "runs/gone/checkpoint-500", "../gone"
    assert [hub_name(model) for model in (None, "demo:en-de", str(tmp_path), *gone)] == [None] * 6
    assert hub_name("me/base") == "me/base"
    tiny_model("marian").save_pretrained(tmp_path)
    for about, name in (({}, None), ({"base_model": "a/b"}, "a/b"), ({"base_model": "a/b", "name": "me/c"}, "me/c")):
        (tmp_path / "README.md").write_text(model_card(tmp_path, about), encoding="utf-8")
        assert hub_name(str(tmp_path)) == name
