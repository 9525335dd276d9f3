"""The explanation of one sentence: shapes, files, words, and what it says of itself."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from hf_nmt_interp.attribution import AttributionResult
from hf_nmt_interp.attribution.result import AttributionResults
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import TokenWords

SOURCE = TokenWords(["▁the", "▁dog", "s", "</s>"], ["the", "dogs"], [0, 1, 1, None], [False, False, False, True])
TARGET = TokenWords(["de", "▁Hun", "de", "</s>"], ["Hunde"], [None, 0, 0, None], [True, False, False, True])


def hand_made(**changes) -> AttributionResult:
    """Two subwords a word on both sides, a language token in front of the target; every step sums to 1."""
    arrays = {
        "source": np.array([[0.5, 0.2, 0.1, 0.1], [0.1, 0.3, 0.2, 0.1], [0.1, 0.2, 0.1, 0.1], [0.0, 0.1, 0.1, 0.2]]),
        "prefix": np.array([[0, 0, 0, 0], [0.2, 0, 0, 0], [0.1, 0.3, 0, 0], [0.1, 0.2, 0.2, 0]]),
        "start": np.array([0.1, 0.1, 0.1, 0.1]),
        "log_probs": np.array([-0.1, -0.5, -0.25, -0.05]),
    }
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    rest = {"conservation_gap": 1e-7, "method": "lrp", "settings": {"alpha": 1.0, "rule": "alpha_beta"}}
    return AttributionResult(**({"source_side": SOURCE, "target_side": TARGET} | arrays | rest | changes))


def test_tokens():
    result = hand_made()
    assert result.source_tokens == ["▁the", "▁dog", "s", "</s>"]
    assert result.target_tokens == ["de", "▁Hun", "de", "</s>"]
    assert result.level == "token"


@pytest.mark.parametrize(
    ("name", "shape"), [("source", (4, 3)), ("prefix", (4, 3)), ("start", (4, 1)), ("log_probs", (5,))]
)
def test_shapes_are_checked(name, shape):
    with pytest.raises(InputError, match=rf"{name}: shape \({shape[0]},.*does not fit 4 target and 4 source tokens"):
        hand_made(**{name: np.zeros(shape, np.float32)})


# ---------------------------------------------------------------------------------------------------- contributions
def test_source_contribution():
    contribution = hand_made().source_contribution
    assert contribution.shape == (4,)
    np.testing.assert_allclose(contribution, [1, 0.7 / 0.9, 0.5 / 0.9, 0.4 / 0.9], rtol=1e-6)


def test_source_contribution_of_a_step_without_mass_is_not_a_number():
    source = hand_made().source.copy()
    source[0] = 0
    contribution = hand_made(source=source).source_contribution
    assert np.isnan(contribution).tolist() == [True, False, False, False]


# ------------------------------------------------------------------------------------------------------------ to words
def test_words_sum_what_contributes_and_average_what_is_explained():
    words = hand_made().to_words()
    assert words.source_tokens == ["the", "dogs", "</s>"]
    assert words.target_tokens == ["de", "Hunde", "</s>"]
    assert words.level == "word"
    np.testing.assert_allclose(words.source, [[0.5, 0.3, 0.1], [0.1, 0.4, 0.1], [0.0, 0.2, 0.2]], rtol=1e-6)
    np.testing.assert_allclose(words.prefix, [[0, 0, 0], [0.15, 0.15, 0], [0.1, 0.4, 0]], rtol=1e-6)
    np.testing.assert_allclose(words.start, [0.1, 0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(words.log_probs, [-0.1, -0.75, -0.05], rtol=1e-6)
    np.testing.assert_allclose(words.source.sum(-1) + words.prefix.sum(-1) + words.start, 1, rtol=1e-6)
    assert words.source_side == TokenWords(
        ["the", "dogs", "</s>"], ["the", "dogs"], [0, 1, None], [False, False, True]
    )
    assert words.target_side.special == [True, False, True]
    assert (words.method, words.settings, words.conservation_gap) == ("lrp", hand_made().settings, 1e-7)


def test_words_of_words_are_themselves():
    words = hand_made().to_words()
    assert words.to_words() is words


def test_special_tokens_side_by_side_stay_apart():
    side = TokenWords(["</s>", "</s>", "▁a", "▁a"], ["a", "a"], [None, None, 0, 1], [True, True, False, False])
    assert hand_made(source_side=side).to_words().source_tokens == ["</s>", "</s>", "a", "a"]


def test_words_without_log_probs():
    assert hand_made(log_probs=None).to_words().log_probs is None


# --------------------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"log_probs": None, "conservation_gap": None, "settings": {}},
        {"translation": Translation([5, 6, 7, 0], [1, 8, 9, 0], start_id=3)},
        {"settings": {"layer": -1, "head": None, "shifted": True, "name": "größer ▁"}},
    ],
)
@pytest.mark.parametrize("level", ["token", "word"])
def test_load_gives_back_what_was_saved(tmp_path, changes, level):
    result = hand_made(**changes) if level == "token" else hand_made(**changes).to_words()
    result.save(tmp_path / "result.safetensors")
    loaded = AttributionResult.load(tmp_path / "result.safetensors")
    for name, value in vars(result).items():
        if isinstance(value, np.ndarray):
            assert getattr(loaded, name).dtype == value.dtype
            np.testing.assert_array_equal(getattr(loaded, name), value)
        else:
            assert getattr(loaded, name) == value, name
    AttributionResult.load(str(tmp_path / "result.safetensors"))


def test_arrays_that_are_views_are_saved(tmp_path):
    result = replace(hand_made(), source=np.asfortranarray(hand_made().source), prefix=hand_made().prefix.T[::-1].T)
    result.save(tmp_path / "result")
    np.testing.assert_array_equal(AttributionResult.load(tmp_path / "result").prefix, result.prefix)
    np.testing.assert_array_equal(AttributionResult.load(tmp_path / "result").source, result.source)


def test_files_that_are_not_results_are_named(tmp_path):
    with pytest.raises(InputError, match=r"path: .*nowhere is not a saved AttributionResult .No such file"):
        AttributionResult.load(tmp_path / "nowhere")
    (tmp_path / "text").write_text("not a safetensors file")
    with pytest.raises(InputError, match=r"path: .*text is not a saved AttributionResult"):
        AttributionResult.load(tmp_path / "text")
    save_file({"source": np.zeros(3)}, tmp_path / "weights")
    with pytest.raises(InputError, match=r"path: .*weights is not a saved AttributionResult"):
        AttributionResult.load(tmp_path / "weights")


def test_a_newer_version_asks_for_an_update(tmp_path):
    metadata = {"format": "hf_nmt_interp.attribution", "version": "99", "result": json.dumps({"new": 1})}
    save_file({"source": np.zeros(3)}, tmp_path / "new", metadata)
    with pytest.raises(InputError, match="has version 99; update hf_nmt_interp to read it"):
        AttributionResult.load(tmp_path / "new")


# ----------------------------------------------------------------------------------------------------- how it looks
def test_repr_says_what_it_is():
    shown = repr(hand_made())
    assert shown == (
        "AttributionResult('the dogs' -> 'Hunde', lrp, 4 x 4 tokens, source share 0.69, conservation gap 1.0e-07)"
    )
    assert "3 x 3 words" in repr(hand_made().to_words())
    assert "gap" not in repr(hand_made(conservation_gap=None))


def test_repr_of_long_sentences_is_short():
    long = replace(SOURCE, words=["donaudampfschifffahrt"] * 10)
    shown = repr(hand_made(source_side=long))
    assert "donaudampfschifffahrt donaudampfschif...'" in shown
    assert len(shown) < 160


def test_pages_and_notebooks_show_the_tokens():
    for shown in (hand_made().to_html(), hand_made()._repr_html_(), hand_made().to_words().to_html()):
        assert "Hun" in shown
        assert "dog" in shown


# ------------------------------------------------------------------------------------------------------------- lists
def test_lists_say_their_translations_and_stay_lists_of_results():
    results = AttributionResults([hand_made(), hand_made(method="attention")])
    assert (results[0].text, results.text) == ("Hunde", ["Hunde", "Hunde"])
    assert results == list(results)
    assert type(results[1:]) is type(results.to_words()) is AttributionResults
    assert [result.level for result in results.to_words()] == ["word", "word"]
    for shown in (results.to_html(), results._repr_html_()):
        assert shown.count("class=") > 0
        assert "attention" in shown
    frame = results.to_pandas()
    assert frame.groupby("sentence").size().tolist() == [26, 26]  # 16 of the source, 6 of the prefix, 4 of the start


@pytest.mark.parametrize("size", [0, 1, 12])
def test_lists_are_saved_in_one_file(tmp_path, size):
    results = AttributionResults(hand_made(conservation_gap=n / 8) for n in range(size))
    results.save(tmp_path / "results")
    loaded = AttributionResults.load(tmp_path / "results")
    assert [result.conservation_gap for result in loaded] == [n / 8 for n in range(size)]
    for one, two in zip(results, loaded, strict=True):
        np.testing.assert_array_equal(one.source, two.source)
        assert (one.target_side, one.settings) == (two.target_side, two.settings)


def test_one_result_and_lists_of_them_are_told_apart(tmp_path):
    hand_made().save(tmp_path / "one")
    assert AttributionResults.load(tmp_path / "one").text == ["Hunde"]
    AttributionResults([hand_made()] * 2).save(tmp_path / "two")
    with pytest.raises(InputError, match=r"path: .*two has 2 results; use AttributionResults.load"):
        AttributionResult.load(tmp_path / "two")
    with pytest.raises(InputError, match=r"path: .*nowhere is not a saved AttributionResult"):
        AttributionResults.load(tmp_path / "nowhere")
