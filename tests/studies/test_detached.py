"""Detached sources."""

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.calibrated import CalibratedMarianConfig, CalibratedMarianMTModel
from hf_nmt_interp.studies.detached import detached_study
from tests.tiny_models import tiny_model


def test_every_sentence_gets_a_source_of_another(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer))
    sources = ["the cat", "a dog sleeps", "my house", "we read"]
    study = detached_study(model, tokenizer, sources, method="lrp", generate={"max_length": 8, "num_beams": 1})
    assert {row["score"] for row in study.table()} == {"source_share", "log_probability"}
    # a random model's greedy output is likelier with the source it was made from
    assert (study.true["log_probability"] > study.detached["log_probability"]).all()
    assert all(0 <= row["auroc"] <= 1 for row in study.table())


def test_what_cannot_be_studied_is_named(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer))
    with pytest.raises(InputError, match="sources: a duplicate sentence was paired with itself; remove duplicates"):
        detached_study(model, tokenizer, ["the cat", "the cat"])
    refused = ("attention", {}, "has no source share"), ("lrp", {"rule": "gamma"}, "returns signed scores with these")
    for method, more, message in refused:
        with pytest.raises(InputError, match=f"method: '{method}' {message}"):
            detached_study(model, tokenizer, ["the cat", "a dog"], method, generate={"max_length": 6}, **more)
    calibrated = CalibratedMarianMTModel(CalibratedMarianConfig(**model.config.to_dict()))
    with pytest.raises(InputError, match="method: 'mask' has no source share; use lrp"):
        detached_study(calibrated, tokenizer, ["the cat", "a dog"], method="mask", generate={"max_length": 6})


def test_one_sentence_cannot_be_shuffled(tokenizer_of):
    with pytest.raises(InputError, match="shuffling needs at least two"):
        detached_study(tiny_model("marian"), tokenizer_of("marian"), ["the cat"])
