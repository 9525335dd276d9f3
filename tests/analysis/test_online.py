"""Alignments made while `generate()` runs, against those of the returned sequences."""

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.alignment import extract_links, normalise, word_scores
from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.decoding.pairs import SHOWN, Pairs
from hf_nmt_interp.text.tokens import TokenWords
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import ENGLISH

SEARCHES = {
    "greedy": {"max_new_tokens": 7},
    "no_cache": {"max_new_tokens": 5, "use_cache": False},
    "beams": {"max_new_tokens": 9, "num_beams": 3, "num_return_sequences": 2},
    "one_beam_returned": {"max_new_tokens": 9, "num_beams": 4, "length_penalty": 0.1},
    "sampling": {"max_new_tokens": 6, "do_sample": True, "num_return_sequences": 2},
}
METHODS = {
    "attention": {"method": "attention", "layer": 0, "head": 1},
    "mean": {"method": "attention"},
    "shifted": {"method": "shifted_attention", "layer": 1},
    "smoothed": {"method": "smoothed_attention", "smoothgrad": 2},
    "lrp": {"method": "lrp"},
}
STEP_BY_STEP = ("attention", "shifted_attention")


@pytest.fixture(scope="module")
def tokenizer(tokenizer_of):
    return tokenizer_of("marian")


def likes_to_stop(family: str, tokenizer) -> torch.nn.Module:
    """A model whose translations end at different steps."""
    model = tiny_model(family, vocab_size=len(tokenizer))
    model.final_logits_bias[:, tokenizer.eos_token_id] += 2.0
    model.final_logits_bias[:, tokenizer.pad_token_id] = -100.0
    model.generation_config.forced_eos_token_id = None  # so that some are cut without EOS
    return model


@pytest.fixture(scope="module")
def model(tokenizer):
    return likes_to_stop("marian", tokenizer)


def offline(model, tokenizer, translations, method, **settings):
    """Results of the very ids that were generated."""
    return explain(
        make_method(model, method, **settings), Pairs.caught(model, tokenizer, translations, splitting=SHOWN)
    )


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_equals_the_offline_alignment_of_the_returned_sequences(model, tokenizer, search, settings):
    inputs = tokenizer(ENGLISH[:3], padding=True, return_tensors="pt")
    events: list = []
    torch.manual_seed(0)
    with hni.align_generation(model, tokenizer, events.append, **settings) as aligned:
        output = model.generate(**inputs, **search)
    torch.manual_seed(0)
    with hni.explain_generation(model, tokenizer, **settings) as explained:
        assert torch.equal(model.generate(**inputs, **search), output)
    own = {"logit": "label"} if settings["method"] == "lrp" else {}
    results = offline(model, tokenizer, explained.translations, **settings, **own)
    assert len(aligned.links) == len(output)
    for n, (found, result) in enumerate(zip(aligned.alignments, results, strict=True)):
        scores = word_scores(result.source, result.source_side, result.target_side)
        np.testing.assert_allclose(found.soft, normalise(scores), atol=1e-5)
        assert found.links == extract_links(scores)
        assert found.target_text == result.target_side.text
        final = [event for event in events if event.sequence == n and event.final]
        assert [event.step for event in final] == [t for t, s in enumerate(result.target_side.special) if not s]
        for event in final:
            token = result.target_tokens[event.step]
            one = TokenWords([token], [token], [0], [False])
            p = normalise(word_scores(result.source[event.step : event.step + 1], result.source_side, one))[0]
            assert (event.token, event.source) == (token, int(p.argmax()))
            assert event.word == result.source_side.words[event.source]
            assert event.score == pytest.approx(p.max(), abs=1e-5)
    assert any(not event.final for event in events) == ("num_beams" in search and settings["method"] in STEP_BY_STEP)


def test_greedy_tokens_come_while_it_runs(model, tokenizer):
    inputs = tokenizer(ENGLISH[:1], return_tensors="pt")
    passes, seen = 0, []

    def count(*_):
        nonlocal passes
        passes += 1

    handle = model.get_decoder().register_forward_hook(count)
    try:
        with hni.align_generation(model, tokenizer, lambda event: seen.append((event.step, passes))):
            model.generate(**inputs, max_new_tokens=6, min_new_tokens=6)
    finally:
        handle.remove()
    # token t is made in pass t + 1 and given after pass t + 2; the last one at the end
    assert seen == [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 6)]


@pytest.mark.parametrize("family", ["mbart", "t5", "bert2bert"])
def test_families_with_other_attentions(family, translator_of):
    model, tokenizer = translator_of("bert" if family == "bert2bert" else family)
    ids = torch.tensor([[5, 6, 7, 8, 9], [7, 5, 30, 31, 32]])
    with hni.align_generation(model, tokenizer, method="attention", layer=0) as aligned:
        model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=2, max_new_tokens=5)
    with hni.explain_generation(model, tokenizer, method="attention", layer=0) as explained:
        model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=2, max_new_tokens=5)
    for found, result in zip(aligned.alignments, explained.results, strict=True):
        np.testing.assert_allclose(found.soft, hni.soft_alignment(result), atol=1e-5)


def test_several_calls_and_nothing_left_behind(model, tokenizer):
    before = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    steps = []
    with hni.align_generation(model, tokenizer, steps.append) as aligned:
        for text in ENGLISH[:2]:
            model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=4)
    assert [event.sequence for event in steps] == sorted(event.sequence for event in steps)
    assert len(aligned.links) == 2
    with pytest.raises(ZeroDivisionError), hni.align_generation(model, tokenizer, lambda event: 1 / 0):
        model.generate(**tokenizer(ENGLISH[0], return_tensors="pt"), max_new_tokens=4)
    assert "generate" not in vars(model)
    assert {name: len(module._forward_hooks) for name, module in model.named_modules()} == before
