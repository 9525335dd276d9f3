"""Masked source words: the same as occlusion, for one word or several."""

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.masking import mask_words
from hf_nmt_interp.errors import InputError


@pytest.fixture(scope="module")
def demo():
    return hni.load_demo("en-de")


def test_one_word_changes_what_occlusion_says(demo):
    result = hni.attribute(*demo, "The dogs are sleeping.", method="occlusion", unit="word")
    for word in range(len(result.source_side.words)):
        found = mask_words(*demo, result, [word])
        at = result.source_side.positions[word]
        falls = result.source[:, at].sum(1)  # of each token of the target
        expected = [-falls[own].sum() for own in result.target_side.positions]
        np.testing.assert_allclose(found.changes, expected, atol=1e-4)


def test_all_words_masked_leave_no_trace_of_them(demo):
    first, second = (hni.attribute(*demo, text, "Ich mag Tee.", method="attention") for text in ("I like", "We see"))
    assert len(first.source_tokens) == len(second.source_tokens)
    ours, theirs = (mask_words(*demo, result, [0, 1]) for result in (first, second))
    assert ours.translation == theirs.translation
    gained = np.array(ours.changes) - theirs.changes  # what is left of both is the same
    before = [result.to_words().log_probs[: len(ours.target)] for result in (first, second)]
    np.testing.assert_allclose(gained, before[1] - before[0], atol=1e-4)


def test_texts_that_encode_to_other_tokens_than_the_result(demo):
    text = "I like </s> tea."  # its words are without the special token
    result = hni.attribute(*demo, text, method="attention")
    assert demo[1](result.source_side.text).input_ids != result.translation.source_ids
    assert mask_words(*demo, result, []).translation == result.text


def test_the_model_is_left_unchanged(demo):
    model, tokenizer = demo
    result = hni.attribute(model, tokenizer, "I like tea.", method="attention")
    ids = tokenizer("I like tea.", return_tensors="pt")
    before = model.generate(**ids)
    assert mask_words(model, tokenizer, result, [2]).translation != result.text
    assert torch.equal(model.generate(**ids), before)
    assert not model.get_input_embeddings()._forward_hooks


def test_words_that_do_not_exist(demo):
    result = hni.attribute(*demo, "I like tea.", method="attention")
    with pytest.raises(InputError, match="words: 4 is not a word of the sentence; it has 0 to 3"):
        mask_words(*demo, result, [0, 4])
    with pytest.raises(InputError, match="result: has no token ids; use the result of attribute"):
        mask_words(*demo, result.to_words(), [0])
