"""What is explained is what is shown: the words that stand there, and which of them the model would have chosen."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import LRP, METHODS
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.html import render
from hf_nmt_interp.report.records import method_name, record
from tests.fitting import fitting

SOURCE, TARGET = "The old dog sleeps.", "Der alte Hund schläft."


def explained(model, pair, logit):
    labels = torch.tensor([pair.ids.target_ids])
    return LRP(model, logit=logit)(input_ids=torch.tensor([pair.ids.source_ids]), labels=labels).source[0].numpy()


def test_lrp_explains_given_words(translator_of):
    model, tokenizer = translator_of("marian")
    (pair,) = Pairs.force(model, tokenizer, [SOURCE], [TARGET])
    label, top = (explained(model, pair, logit) for logit in ("label", "top1"))
    assert not np.allclose(label, top)
    result = hni.attribute(model, tokenizer, SOURCE, TARGET)
    np.testing.assert_allclose(result.source, label, atol=1e-6)
    assert result.settings == {"logit": "label"}
    asked = hni.attribute(model, tokenizer, SOURCE, TARGET, logit="top1")
    np.testing.assert_allclose(asked.source, top, atol=1e-6)
    assert (method_name(result), method_name(asked)) == ("lrp", "lrp (logit top1)")


def test_lrp_explains_the_words_of_any_search(translator_of):
    model, tokenizer = translator_of("marian")
    with hni.explain_generation(model, tokenizer, method="lrp") as caught:
        model.generate(**tokenizer(SOURCE, return_tensors="pt"), do_sample=True, max_new_tokens=6)
    (result,) = caught.results
    ids = result.translation
    labels = LRP(model, logit="label")(
        input_ids=torch.tensor([ids.source_ids]), labels=torch.tensor([ids.target_ids]),
        decoder_input_ids=torch.tensor([[ids.start_id, *ids.target_ids[:-1]]]),
    )  # fmt: skip
    np.testing.assert_allclose(result.source, labels.source[0], atol=1e-6)
    assert result.chosen is None


@pytest.mark.parametrize("method", [name for name in METHODS if name != "mask"])
def test_every_method_knows_what_the_model_would_have_chosen(translator_of, method):
    model, tokenizer = translator_of("marian")
    model = fitting(method, model)
    model.generation_config.num_beams = 1
    settings = {"smoothgrad": 2} if "smooth" in method else {}
    (pair,) = Pairs.force(model, tokenizer, [SOURCE], [TARGET])
    inputs = {"input_ids": torch.tensor([pair.ids.source_ids]), "labels": torch.tensor([pair.ids.target_ids])}
    with torch.no_grad():
        expected = (model(**inputs).logits[0].argmax(-1) == inputs["labels"][0]).tolist()
    result = hni.attribute(model, tokenizer, SOURCE, TARGET, method=method, **settings)
    assert result.chosen == expected
    assert hni.attribute(model, tokenizer, SOURCE, method=method, **settings).chosen is None


def test_a_word_is_chosen_if_all_its_tokens_are(result):
    marked = replace(result, chosen=[True, True, True, False, True])  # the last word has two tokens
    assert marked.to_words().chosen == [True, True, False, True]
    assert result.to_words().chosen is None
    with pytest.raises(InputError, match=r"chosen: shape \(1,\) does not fit 5 target"):
        replace(result, chosen=[True])


def test_choices_are_saved_and_shown(result, tmp_path):
    marked = replace(result, chosen=[True, False, True, True, True])
    marked.save(tmp_path / "r.safetensors")
    assert hni.AttributionResult.load(tmp_path / "r.safetensors").chosen == marked.chosen
    assert record(marked)["chosen"] == marked.chosen
    assert "chosen" not in record(result)
    page = render([marked])
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data[0]["views"][0]["word"]["unchosen"] == [False, True, False, False]
    assert (
        json.loads(render([result]).split('id="data">')[1].split("</script>")[0])[0]["views"][0]["word"]["unchosen"]
        == []
    )


def test_the_command_line_marks_words_and_says_what_is_explained(run, model_folder):
    words = "attribute", "--model", model_folder, SOURCE, "--target", TARGET
    out = run(*words).out
    assert "Hund *" in out
    assert "* not the model's first choice" in out
    assert "explains the model's first choice" not in out
    assert "explains the model's first choice" in " ".join(run(*words, "--set", "logit=top1").out.split())
    assert "*" not in run(*words[:4]).out
    assert '    --set logit="label"' in run("attribute", "--list-methods").out


def test_contributions_are_of_the_models_choices(run, model_folder, tmp_path):
    """As in the paper, for single sentences and for shards."""
    words = "contributions", "--model", model_folder, "--statistic", "source_contribution", "--format", "json"
    given = "--target", TARGET
    plain = run(*words, SOURCE, *given).out
    assert plain == run(*words, SOURCE, *given, "--set", "logit=top1").out
    assert plain != run(*words, SOURCE, *given, "--set", "logit=label").out
    for name, text in (("s.en", SOURCE), ("s.de", TARGET)):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    files = "--input", tmp_path / "s.en", "--target-file", tmp_path / "s.de", "--shards", tmp_path / "run"
    assert run(*words[:5], *files).code == 0
    merged = run("merge", tmp_path / "run", "--format", "json").out
    rows = [[json.loads(line)["mean"] for line in text.splitlines()] for text in (plain, merged)]
    np.testing.assert_allclose(*rows, rtol=1e-5)


def test_alignment_makes_no_further_pass(translator_of, monkeypatch):
    model, tokenizer = translator_of("marian")
    monkeypatch.setattr("hf_nmt_interp.attribution.api.run_model", lambda *_: pytest.fail("a further pass"))
    hni.align(model, tokenizer, SOURCE, TARGET, method="saliency")
    assert make_method(model, "saliency").word_settings == {}


@pytest.fixture
def result():
    from tests.made_up_results import make_result

    return make_result(["▁A", "▁cat", "▁sleep", "s", "</s>"], ["▁Eine", "▁Katze", "▁schlä", "ft", "</s>"])
