"""Why this and not that: scores of differences, and what users give as contrast.

Also for attribution/scores.py and decoding/contrasts.py.
"""

import copy
import itertools
import json

import numpy as np
import pytest
import torch
from torch import nn

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import LRP, IntegratedGradients, Occlusion, Saliency
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.html import render
from hf_nmt_interp.report.records import scores as rows_of
from tests.reference import perturbations as twins
from tests.reference.shift import shifted_right
from tests.tiny_models import random_batch, tiny_model

LENGTHS = [(5, 4), (3, 4)]
SOURCE, TARGET = "The cat is sleeping on the sofa.", "Die Katze schläft auf dem Sofa."


def contrast_of(batch):
    """Other labels of one step of each sentence."""
    contrast = torch.full_like(batch["labels"], -100)
    contrast[0, 2], contrast[1, 1] = 11, 12
    assert (contrast != batch["labels"]).any(-1).all()
    return contrast


@pytest.mark.parametrize("score", ["logit", "log_probability", "probability"])
@pytest.mark.parametrize(
    ("kind", "settings"), [(Saliency, {}), (IntegratedGradients, {"steps": 3}), (Occlusion, {"how": "delete"})]
)
def test_a_difference_of_scores_has_the_difference_of_contributions(kind, settings, score):
    model = tiny_model("marian", torch.float64)
    batch = random_batch(model, LENGTHS)
    contrast, method = contrast_of(batch), kind(model, score=score, **settings)
    read = shifted_right(model, batch["labels"])
    other = torch.where(contrast == -100, batch["labels"], contrast)
    found = method(**batch, contrast=contrast)
    whole, rest = method(**batch, decoder_input_ids=read), method(**batch | {"labels": other}, decoder_input_ids=read)
    differs = (contrast != -100)[..., None]
    torch.testing.assert_close(found.source, (whole.source - rest.source) * differs)
    torch.testing.assert_close(found.prefix, (whole.prefix - rest.prefix) * differs)


@pytest.mark.parametrize("family", ["marian", "t5_gated"])
def test_lrp_of_a_difference_is_that_of_one_unit_with_the_difference_of_weights(family):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, [(5, 4)])
    contrast = torch.full_like(batch["labels"], -100)
    contrast[0, 2] = 11
    found = LRP(model, logit="label")(**batch, contrast=contrast)
    one = copy.deepcopy(model)
    label = batch["labels"][0, 2]
    weight = one.lm_head.weight.detach().clone()
    weight[label] -= weight[11]
    one.lm_head.weight = nn.Parameter(weight)
    if hasattr(one, "final_logits_bias"):
        one.final_logits_bias[0, label] -= one.final_logits_bias[0, 11]
    expected = LRP(one, logit="label")(**batch)
    torch.testing.assert_close(found.source[0, 2], expected.source[0, 2])
    torch.testing.assert_close(found.prefix[0, 2], expected.prefix[0, 2])
    assert not torch.allclose(found.source[0, 2], LRP(model, logit="label")(**batch).source[0, 2])
    assert found.conservation_gap.item() < 1e-6


@pytest.mark.parametrize("score", ["entropy", "kl"])
@pytest.mark.parametrize("family", ["marian", "t5", "lstm"])
def test_scores_of_whole_distributions(family, score):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, [(5, 4)])
    other = batch["labels"].clone()
    other[0, 1] = 11
    scores = Saliency(model, score=score)(**batch, **({"contrast": other} if score == "kl" else {}))
    source, decoder, logits_of, _, table = twins.take(model, batch["input_ids"][0], batch["labels"][0])
    reference = logits_of(source, table[shifted_right(model, other)[0]])
    for t, label in enumerate(batch["labels"][0].tolist()):
        x, y = source.clone().requires_grad_(), decoder.clone().requires_grad_()
        value = twins.score(logits_of(x, y)[t], label, score, reference=reference[t])
        to_x, to_y = torch.autograd.grad(value, (x, y))
        torch.testing.assert_close(scores.source[0, t], (to_x * x).sum(-1).detach(), atol=1e-7, rtol=1e-7)
        torch.testing.assert_close(scores.start[0, t], (to_y * y).sum(-1)[0].detach(), atol=1e-7, rtol=1e-7)
    with pytest.raises(InputError, match="score: 'kl' compares two prefixes; give another translation as contrast"):
        Saliency(model, score="kl")(**batch)


def test_a_word_a_token_and_a_translation_say_the_same():
    model, tokenizer = hni.load_demo("en-de")
    whole = hni.attribute(model, tokenizer, SOURCE, TARGET, contrast="Die Hündin schläft auf dem Sofa.")
    step = next(t for t, text in enumerate(whole.contrast) if text)
    other = tokenizer(text_target="Die Hündin schläft auf dem Sofa.")["input_ids"][step]
    token = tokenizer.convert_ids_to_tokens([other])[0]
    for contrast in ({"Katze": "Hündin"}, {step: other}, {step: token}):
        found = hni.attribute(model, tokenizer, SOURCE, TARGET, contrast=contrast)
        np.testing.assert_allclose(found.source, whole.source, atol=1e-6)
    assert whole.contrast[step] == "Hündin"
    assert whole.source[step].sum() + whole.prefix[step].sum() + whole.start[step] == pytest.approx(1, abs=1e-4)
    assert not np.delete(whole.source, step, 0).any()
    words = whole.to_words()
    assert words.contrast == [None, "Hündin", *[None] * (len(words.contrast) - 2)]
    assert words.source[1].sum() == pytest.approx(whole.source[step].sum(), abs=1e-6)
    every = hni.attribute(model, tokenizer, SOURCE, TARGET, contrast="Der Hund schläft.", contrast_steps="all")
    assert sum(text is not None for text in every.contrast) > 1
    results = hni.attribute(model, tokenizer, [SOURCE, "I like tea."], [TARGET, "Ich mag Tee."], method="saliency",
                            contrast=[{"Katze": "Hündin"}, {"Tee": "Kaffee"}])  # fmt: skip
    assert [[text for text in result.contrast if text] for result in results] == [["Hündin"], ["Kaffee"]]


def test_a_contrast_is_saved_and_shown(tmp_path):
    model, tokenizer = hni.load_demo("en-de")
    result = hni.attribute(model, tokenizer, "I like tea.", "Ich mag Tee.", contrast={"Tee": "Kaffee"})
    result.save(tmp_path / "result")
    assert hni.AttributionResult.load(tmp_path / "result").contrast == result.contrast
    data = json.loads(render([result]).split('id="data">')[1].split("</script>")[0])
    assert data[0]["views"][0]["word"]["contrast"] == [None, None, "Kaffee", None, None]
    assert {(row["target"], row["contrast"]) for row in rows_of(result.to_words())} == {("Tee", "Kaffee")}


def test_a_divergence_shows_the_other_prefix():
    model, tokenizer = hni.load_demo("en-de")
    pair, settings = ("I like tea.", "Ich mag Tee."), {"method": "saliency", "score": "kl"}
    result = hni.attribute(model, tokenizer, *pair, **settings, contrast="Du magst sehr gern Tee.").to_words()
    assert result.contrast == [None, "Du", "Du magst", "Du magst sehr", "Du magst sehr gern"]
    data = json.loads(render([result]).split('id="data">')[1].split("</script>")[0])
    assert data[0]["views"][0]["word"]["diverges"]
    other = "Das Unverzeihliche schläft auf dem Sofa."
    halves = hni.attribute(model, tokenizer, SOURCE, TARGET, **settings, contrast=other)
    both = [text for text in halves.contrast if text]
    assert all(later.startswith(text) for text, later in itertools.pairwise(both))
    assert {text for text in halves.to_words().contrast if text} <= set(both)  # each word has the prefix of its first


def test_a_language_code_is_shared_with_the_contrast(translator_of):
    model, tokenizer = translator_of("nllb")
    result = hni.attribute(model, tokenizer, "A car!", "Ein Auto!", method="saliency", contrast="Ein Hund!")
    assert result.target_side.special[0]
    assert result.contrast[0] is None
    assert any(result.contrast[1:])


def test_a_generated_translation_is_compared_after_its_own_prefix(translator_of):
    model, tokenizer = translator_of("nllb")
    code = tokenizer.convert_tokens_to_ids("eng_Latn")
    given = {"generate": {"forced_bos_token_id": code, "max_length": 8}, "method": "saliency"}
    plain = hni.attribute(model, tokenizer, "A car!", **given)
    word = plain.target_side.words[-1]
    result = hni.attribute(model, tokenizer, "A car!", contrast={word: "Hund"}, **given)
    first = result.target_side.word_ids.index(len(plain.target_side.words) - 1)
    assert result.translation.target_ids[0] == code
    assert [t for t, text in enumerate(result.contrast) if text] == [first]
    assert result.contrast[first] == "Hund"


@pytest.mark.parametrize("kind", [Occlusion, IntegratedGradients])
def test_divergence_is_explained_where_the_prefixes_differ(kind):
    model = tiny_model("mbart", torch.float64)
    batch = random_batch(model, [(5, 4)])
    other = batch["labels"].clone()
    other[0, 1] = 11
    scores = kind(model, score="kl", **({"steps": 3} if kind is IntegratedGradients else {}))(**batch, contrast=other)
    assert scores.source.abs().sum(-1).gt(0)[0].tolist() == [False, False, True, True]
    if kind is Occlusion:
        read = shifted_right(model, batch["labels"])
        source, _, logits_of, _, table = twins.take(model, batch["input_ids"][0], batch["labels"][0])
        reference = logits_of(source, table[torch.cat([read[0, :1], other[0, :-1]])])
        without = torch.cat([torch.zeros_like(source[:1]), source[1:]])
        for t in (2, 3):
            both = [logits_of(x, table[read[0]])[t] for x in (source, without)]
            whole, rest = (twins.score(z, 0, "kl", reference=reference[t]) for z in both)
            torch.testing.assert_close(scores.source[0, t, 0], whole - rest)


def test_words_without_spaces_and_punctuation_can_be_compared():
    model, tokenizer = hni.load_demo("en-de")
    result = hni.attribute(model, tokenizer, SOURCE, TARGET, method="saliency", contrast={".": "!"})
    assert [text for text in result.contrast if text] == ["!"]
    none = hni.attribute(model, tokenizer, [SOURCE] * 2, [TARGET] * 2, contrast=[None, {"Katze": "Hündin"}])
    assert not any(none[0].contrast or ())


def test_bad_contrasts_are_named():
    model, tokenizer = hni.load_demo("en-de")
    for contrast, message in (
        (TARGET, r"contrast\[0\]: .* does not differ from the translation where both have tokens"),
        ({"Hund": "Katze"}, r"contrast\[0\]: 'Hund' occurs 0 times in 'Die Katze"),
        ({}, r"contrast\[0\]: \{\} must have one entry, a word and its replacement"),
        ({99: 5}, r"contrast\[0\]: 99 is out of range: the translation has \d+ tokens, counted from 0"),
        ({0: "no such token"}, r"contrast\[0\]: 'no such token' is not a token of the tokenizer"),
        (3, r"contrast\[0\]: int is not a translation; give text"),
    ):
        with pytest.raises(InputError, match=message):
            hni.attribute(model, tokenizer, SOURCE, TARGET, contrast=contrast)
    with pytest.raises(InputError, match="contrast: 1 contrasts for 2 sentences; give one each"):
        hni.attribute(model, tokenizer, [SOURCE] * 2, [TARGET] * 2, contrast=["Ein Hund."])
    with pytest.raises(InputError, match="contrast: 1 contrasts for 2 sentences; give one each"):
        hni.attribute(model, tokenizer, [SOURCE] * 2, [TARGET] * 2, contrast="Ein Hund.")
    with pytest.raises(InputError, match="contrast_steps: 'last' is not one of first, all"):
        hni.attribute(model, tokenizer, SOURCE, TARGET, contrast_steps="last")
    with pytest.raises(InputError, match="score: 'entropy' is not a score of a label, so there is nothing to compare"):
        hni.attribute(model, tokenizer, SOURCE, TARGET, "saliency", score="entropy", contrast="Ein Hund.")
    with pytest.raises(InputError, match="contrast: method 'alti' does not explain a score of the label"):
        hni.attribute(model, tokenizer, SOURCE, TARGET, method="alti", contrast="Ein Hund.")
