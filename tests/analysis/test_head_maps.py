"""Attention heads of one sentence pair."""

import numpy as np
import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.head_maps import head_maps
from hf_nmt_interp.errors import InputError


def test_maps_are_the_weights_that_the_method_reports(translator_of) -> None:
    model, tokenizer = translator_of("marian")
    result = hni.attribute(model, tokenizer, "the cat sleeps", method="attention", layer=0, head=1)
    cross, encoder = head_maps(model, result)
    assert (cross.queries, cross.keys) == (result.target_tokens, result.source_tokens)
    assert encoder.queries == encoder.keys == result.source_tokens
    assert len(cross.layers) == model.config.decoder_layers
    heads, weights = cross.layers[0]
    assert list(heads) == list(range(model.config.decoder_attention_heads))
    np.testing.assert_allclose(weights[1], result.source, atol=1e-6)
    for _, own in [*cross.layers.values(), *encoder.layers.values()]:
        np.testing.assert_allclose(own.sum(-1), 1, atol=1e-5)


def test_words_have_no_maps(translator_of) -> None:
    model, tokenizer = translator_of("marian")
    result = hni.attribute(model, tokenizer, "the cat sleeps", method="attention")
    with pytest.raises(InputError, match=r"result: expected a subword result with ids; give one that attribute\(\)"):
        head_maps(model, result.to_words())
