"""Cards of translators: what training runs leave behind, metadata that the Hub takes, in step with the box."""

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models import demo
from hf_nmt_interp.models.gated import GatedMarianMTModel
from hf_nmt_interp.report.cards import curve_of, model_card
from tests.calibrated_models import calibrated_copy
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import ENGLISH, GERMAN, make_marian_tokenizer

CARDS = Path(__file__).parents[2] / "model_cards"
ABOUT = {
    **{"name": "tiny", "source_lang": "en", "target_lang": "de", "data": "made up", "datasets": ["none"]},
    **{"license": "cc0-1.0", "license_name": "CC0", "test_name": "ten sentences", "base_model": "some/model"},
    **{"command": "python train.py --max_steps 5", "arguments": {"max_steps": "5"}, "risk": "bleu"},
}
TRAINED = {"train_steps": 5, "train_seconds": 60.0}
SCORES = {"test_bleu": 12.34, "test_chrf": 23.45}


def test_card_of_a_translator_has_valid_metadata(tmp_path):
    tiny_model("marian").save_pretrained(tmp_path)
    text = model_card(tmp_path, ABOUT | {"results": TRAINED | SCORES})
    data = ModelCard(text).data
    assert (data.library_name, data.pipeline_tag, data.license) == ("transformers", "translation", "cc0-1.0")
    assert (data.base_model, data.datasets, data.language) == ("some/model", ["none"], ["en", "de"])
    assert {(score.metric_type, score.metric_value) for score in data.eval_results} == {
        ("sacrebleu", 12.3),
        ("chrf", 23.4),
    }
    assert "BLEU 12.3, chrF 23.4" in text
    assert "python train.py \\\n    --max_steps 5" in text
    assert "| `max_steps` | `5` |" in text
    assert "| risk that was minimised | bleu |" in text
    assert "heads kept" not in text
    with pytest.raises(InputError, match="about: 'licence' is not one of name"):
        model_card(tmp_path, {"licence": "mit"})


def test_cards_tell_heads_and_fusion(tmp_path):
    plain = tiny_model("marian")
    plain.save_pretrained(tmp_path / "plain")
    gated = GatedMarianMTModel.from_pretrained(tmp_path / "plain")
    gated.set_kept_heads({"encoder": [[1], []]})
    gated.prune().save_pretrained(tmp_path / "pruned")
    card = model_card(tmp_path / "pruned", {"results": TRAINED | {"pruned": SCORES}})
    assert f"| parameters | {gated.prune().num_parameters():,}, " in card  # as tables of pruning count them
    assert "| heads kept, by layer | encoder 1 0; decoder 2 2; cross 2 2 |" in card
    assert "BLEU 12.3" in card
    assert "trust_remote_code=True" in card
    calibrated_copy(plain).save_pretrained(tmp_path / "calibrated")
    assert "| fusion of calibrated attention | gate |" in model_card(tmp_path / "calibrated")


def test_usage_snippet_runs_and_curve_is_that_of_the_model(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    tokenizer = make_marian_tokenizer(tmp_path / "here")
    model = tiny_model("marian", vocab_size=len(tokenizer))
    model.generation_config.max_length = 8
    model.save_pretrained(tmp_path / "here")
    pairs = list(zip(ENGLISH[:3], GERMAN[:3], strict=True))
    curve = curve_of(model, tokenizer, pairs, "three sentences")
    shares = [
        result.source_contribution[1]
        for result in hni.attribute(model, tokenizer, ENGLISH[:3], GERMAN[:3], logit="top1")
    ]
    assert float(curve["rows"][1]["mean"]) == pytest.approx(sum(shares) / 3, abs=6e-4)
    text = model_card("here", {"curve": curve})
    assert f"| 1 | {curve['rows'][1]['mean']} |" in text
    snippet = text.split("## Use")[1].split("```python\n")[1].split("```")[0]
    exec(compile(snippet, "card", "exec"), {})
    assert "AttributionResult('The cat is sleeping" in capsys.readouterr().out


@pytest.mark.parametrize("family", ["lstm", "conv"])
def test_usage_snippets_of_other_kinds_run(tmp_path, capsys, monkeypatch, family):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    tokenizer = make_marian_tokenizer(tmp_path / "here")
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": eos}
    model = tiny_model(family, vocab_size=len(tokenizer), **special)
    model.generation_config.max_length = 8
    model.save_pretrained(tmp_path / "here")
    curve = curve_of(model, tokenizer, [("A dog.", "Ein Hund.")], "one sentence")
    text = model_card("here", {"curve": curve})
    assert "There are no source shares: lrp has no rules" in text
    exec(compile(text.split("## Use")[1].split("```python\n")[1].split("```")[0], "card", "exec"), {})
    assert "AttributionResult('The cat is sleeping" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(path.stem for path in CARDS.glob("*.json")))
def test_shipped_cards_are_what_their_data_give(name, tmp_path):
    entry = json.loads((CARDS / f"{name}.json").read_text(encoding="utf-8"))
    folder = Path(str(demo.__file__)).parent / name.removeprefix("demo-")
    if "config" in entry:  # its weights are not in the box
        folder = tmp_path
        (folder / "config.json").write_text(json.dumps(entry["config"]), encoding="utf-8")
    text = (CARDS / f"{name}.md").read_text(encoding="utf-8")
    assert text == model_card(folder, entry["about"])
    data = ModelCard(text).data
    assert data.pipeline_tag == "translation"
    assert {score.metric_type for score in data.eval_results} == {"sacrebleu", "chrf"}


@pytest.mark.parametrize("name", ["demo-en-de", "demo-de-en"])
def test_the_lines_of_shipped_cards_run(name, capsys):
    snippet = (CARDS / f"{name}.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    exec(compile(snippet, "card", "exec"), {})
    assert len(capsys.readouterr().out.split()) > 3


def test_the_template_shown_is_the_one_in_use():
    package = Path(hni.__file__).parent / "report/templates/model_card.md"
    assert (CARDS / "template" / "model_card.md").read_text(encoding="utf-8") == package.read_text(encoding="utf-8")
