"""From text, or from generate(), to results.

Also for attribution/base.py and attribution/registry.py.
"""

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import separate_punctuation
from tests.fitting import fitting
from tests.tiny_models import tiny_model

SOURCES = ["The old dog sleeps under the table.", "A car!", "Two children are looking for shells."]
TARGETS = ["Der alte Hund schläft.", "Zwei kleine Kinder suchen am Strand nach Muscheln.", "Ein Auto!"]


def encode(tokenizer):
    encoded = tokenizer(SOURCES, padding=True, return_tensors="pt")
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def assert_same(one, two) -> None:
    assert (one.source_side, one.target_side) == (two.source_side, two.target_side)
    for name in ("source", "prefix", "start", "log_probs"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), atol=1e-5)


# ----------------------------------------------------------------------------------------------------------- attribute
def test_one_sentence_gives_one_result(any_translator):
    model, tokenizer = any_translator
    result = hni.attribute(model, tokenizer, SOURCES[0], TARGETS[0])
    assert isinstance(result, hni.AttributionResult)
    S, T = len(tokenizer(SOURCES[0])["input_ids"]), len(tokenizer(text_target=TARGETS[0])["input_ids"])
    assert (len(result.source_tokens), len(result.target_tokens)) == (S, T)
    assert (result.source.shape, result.prefix.shape, result.start.shape) == ((T, S), (T, T), (T,))
    assert result.source.dtype == np.float32
    assert result.source_side.words == separate_punctuation(SOURCES[0]).split()
    assert result.links is None
    assert result.source_side.special[-1]
    assert result.target_side.special[-1]
    assert result.conservation_gap <= 1e-4
    assert result.source_contribution[0] == 1
    assert (result.log_probs < 0).all()
    assert (result.method, result.settings) == ("lrp", {"logit": "label"})


def test_a_list_keeps_its_order(translator_of):
    model, tokenizer = translator_of("marian")
    for batch_size in (1, 2, 16):
        results = hni.attribute(model, tokenizer, SOURCES, TARGETS, method="lrp", logit="label", batch_size=batch_size)
        for result, source, target in zip(results, SOURCES, TARGETS, strict=True):
            assert_same(result, hni.attribute(model, tokenizer, source, target=target, logit="label"))
            assert result.settings == {"logit": "label"}


def test_a_list_of_one_and_of_none(translator_of):
    model, tokenizer = translator_of("marian")
    assert len(hni.attribute(model, tokenizer, SOURCES[:1], TARGETS[:1])) == 1
    assert hni.attribute(model, tokenizer, [], []) == []
    assert hni.attribute(model, tokenizer, []) == []


def test_generated_translations(any_translator):
    model, tokenizer = any_translator
    generated = model.generate(**encode(tokenizer), num_beams=2)
    results = hni.attribute(model, tokenizer, SOURCES, method="attention", batch_size=2, generate={"num_beams": 2})
    for result, source, (start, *ids) in zip(results, SOURCES, generated.tolist(), strict=True):
        assert result.source_side.words == separate_punctuation(source).split()
        T = len(result.target_tokens)
        assert result.translation.start_id == start
        assert result.translation.target_ids == ids[:T]
        assert set(ids[T:]) <= {model.config.pad_token_id}
    one = hni.attribute(model, tokenizer, SOURCES[1], method="attention", generate={"num_beams": 2})
    assert_same(one, results[1])
    assert "generate" not in vars(model)


def test_words_are_kept_as_given(translator_of):
    model, tokenizer = translator_of("marian")
    words = [["The", "old", "dog", "sleeps", "."], ["A", "car"]]
    targets = [["Der", "alte", "Hund", "schläft", "."], ["Ein", "Auto"]]
    results = hni.attribute(model, tokenizer, words, targets, method="attention")
    assert [r.source_side.words for r in results] == words
    assert [r.target_side.words for r in results] == targets
    mixed = hni.attribute(model, tokenizer, "The old dog sleeps .", targets[0], method="attention")
    assert_same(mixed, results[0])
    assert results[0].to_words().source.shape == (6, 6)  # five words and EOS


def test_punctuation_may_stay_attached(translator_of):
    model, tokenizer = translator_of("marian")
    result = hni.attribute(model, tokenizer, SOURCES[0], TARGETS[0], "attention", punctuation="attached")
    assert result.source_side.words == SOURCES[0].split()
    assert result.target_side.words == TARGETS[0].split()


def marks_apart(links, result):
    """The links without those between a mark and a word."""
    words = result.source_side.words, result.target_side.words
    return {(i, j) for i, j in links if (words[0][i] in ".,!?") == (words[1][j] in ".,!?")}


def test_links_are_those_of_align_but_between_marks_and_words(translator_of, tmp_path):
    model, tokenizer = translator_of("marian")
    sources, targets = [*SOURCES, ""], [*TARGETS, "Ein Auto!"]
    found = hni.attribute(model, tokenizer, sources, targets)
    results = hni.add_links(model, found)
    assert hni.add_links(model, found[-1]).links == set()
    with pytest.raises(InputError, match="results: expected subword results with ids"):
        hni.add_links(model, found[0].to_words())
    all_links = hni.align(model, tokenizer, sources, targets, punctuation="separate")
    aligned = [marks_apart(links, result) for links, result in zip(all_links, results, strict=True)]
    assert [result.links for result in results] == aligned
    assert aligned != all_links
    assert results[0].links
    assert results[-1].links == set()
    assert results[0].to_words().links == aligned[0]
    results[0].save(tmp_path / "result")
    assert hni.AttributionResult.load(tmp_path / "result").links == aligned[0]


def test_a_mark_without_a_counterpart_has_no_link():
    model, tokenizer = hni.load_demo("en-de")
    result = hni.attribute(model, tokenizer, "I do not know where it is.", "Ich weiß nicht, wo es ist.", "attention")
    comma = result.target_side.words.index(",")
    linked = hni.add_links(model, result).links
    assert comma not in {target for _, target in linked}
    assert (result.source_side.words.index("."), result.target_side.words.index(".")) in linked


@pytest.mark.parametrize("method", METHODS)
def test_every_method_by_name(translator_of, method):
    model, tokenizer = translator_of("marian")
    results = hni.attribute(fitting(method, model), tokenizer, SOURCES, TARGETS, method=method)
    for result in results:
        assert result.method == method
        assert np.isfinite(result.source).all()
        assert not np.triu(result.prefix).any()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_explains_a_generation_and_aligns(translator_of, method):
    model, tokenizer = translator_of("marian")
    model = fitting(method, model)
    with hni.explain_generation(model, tokenizer, method=method) as explained:
        model.generate(**encode(tokenizer))
    for result in explained.results:
        assert result.method == method
        assert np.isfinite(result.source).all()
    links = hni.align(model, tokenizer, SOURCES, TARGETS, method=method)
    for found, source, target in zip(links, SOURCES, TARGETS, strict=True):
        sizes = [len(separate_punctuation(text).split()) for text in (source, target)]
        assert found
        assert all(i < sizes[0] and j < sizes[1] for i, j in found)


def test_empty_sentences(translator_of):
    model, tokenizer = translator_of("marian")
    result = hni.attribute(model, tokenizer, "", "")
    assert (result.source_tokens, result.target_tokens) == (["</s>"], ["</s>"])
    assert result.conservation_gap <= 1e-4


def test_bad_arguments_are_named(translator_of):
    model, tokenizer = translator_of("marian")

    def call(*arguments, **settings):
        return hni.attribute(model, tokenizer, *arguments, **settings)

    with pytest.raises(InputError, match=r"method: 'magic' is not one of lrp, .*attention"):
        call("A", method="magic")
    with pytest.raises(InputError, match="alhpa: method 'lrp' has no such setting; it has rule, alpha, beta"):
        call("A", alhpa=1)
    with pytest.raises(InputError, match="targets: 1 targets for 3 sources; give one each"):
        call(SOURCES, TARGETS[:1])
    with pytest.raises(InputError, match="targets: 'Ein Auto!' is one sentence for a list of sources; give a list"):
        call(SOURCES, "Ein Auto!")
    with pytest.raises(InputError, match="batch_size: 0 must be a positive integer"):
        call(SOURCES, TARGETS, batch_size=0)
    with pytest.raises(InputError, match="num_return_sequences: must be 1: one translation per source; use"):
        call("A", generate={"num_return_sequences": 2, "num_beams": 2})
    with pytest.raises(InputError, match=r"tokenizer: \d+ tokens, but the model has 40; use the model's own"):
        hni.attribute(tiny_model("marian"), tokenizer, SOURCES[0], TARGETS[0])


def test_make_method_refuses_the_model_first():
    with pytest.raises(InputError, match="only encoder-decoder models are supported, Linear is not one"):
        make_method(torch.nn.Linear(1, 1), "lrp")


# -------------------------------------------------------------------------------------------------- explain_generation
def test_generation_is_explained_from_its_ids(any_translator):
    model, tokenizer = any_translator
    with hni.explain_generation(model, tokenizer, method="lrp", alpha=0.5, beta=0.5) as explained:
        output = model.generate(**encode(tokenizer), num_beams=2, num_return_sequences=2)
    results = explained.results
    assert len(results) == len(output) == 6
    for i, (result, sequence) in enumerate(zip(results, output.tolist(), strict=True)):
        ids = sequence[1 : 1 + len(result.target_tokens)]
        assert result.translation.target_ids == ids
        assert set(sequence[1 + len(ids) :]) <= {model.config.pad_token_id}
        assert result.source_side.words == separate_punctuation(SOURCES[i // 2]).split()
        assert result.conservation_gap <= 1e-4
        assert result.settings == {"logit": "label", "alpha": 0.5, "beta": 0.5}
    assert "generate" not in vars(model)


def test_results_inside_and_after_the_context(translator_of):
    model, tokenizer = translator_of("nllb")
    with hni.explain_generation(model, tokenizer, method="attention") as explained:
        assert explained.results == []
        model.generate(**encode(tokenizer))
        first = explained.results
        assert len(first) == 3
        model.generate(tokenizer(SOURCES[1], return_tensors="pt")["input_ids"], do_sample=True)
        assert len(explained.results) == 4
    assert len(explained.results) == 4
    assert all(one is two for one, two in zip(explained.results, first, strict=False))  # explained once
    assert [r.target_tokens[0] for r in first] == ["deu_Latn"] * 3
    assert all(r.target_side.special[0] for r in first)
    assert_same(first[1], hni.attribute(model, tokenizer, SOURCES[1], method="attention"))


def test_after_an_error_what_was_caught_can_be_explained(translator_of):
    model, tokenizer = translator_of("marian")

    def generate_and_fail():
        model.generate(**encode(tokenizer))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hni.explain_generation(model, tokenizer, method="attention") as explained:
        generate_and_fail()
    assert "generate" not in vars(model)
    assert len(explained.results) == 3


def test_bad_settings_are_named_before_anything_runs(translator_of):
    model, tokenizer = translator_of("marian")
    with (
        pytest.raises(InputError, match="layer: 7 is out of range"),
        hni.explain_generation(model, tokenizer, method="attention", layer=7),
    ):
        pytest.fail("entered")
    assert "generate" not in vars(model)


def test_contexts_are_not_nested(translator_of):
    model, tokenizer = translator_of("marian")
    with hni.explain_generation(model, tokenizer, method="attention") as explained:
        with pytest.raises(InputError, match="leave the other context first"):
            hni.attribute(model, tokenizer, SOURCES[0])
        hni.attribute(model, tokenizer, SOURCES[0], TARGETS[0])  # generates nothing
        model.generate(**encode(tokenizer))
    assert len(explained.results) == 3
