"""Word alignments by hand and of tiny models.

Also for analysis/links.py, analysis/symmetrization.py and studies/best_attention.py.
"""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.alignment import (
    combined_scores,
    extract_links,
    joint_links,
    make_aligners,
    normalise,
    subword_dispersion,
    subword_links,
    token_scores,
    word_scores,
)
from hf_nmt_interp.analysis.links import EXTRACTIONS
from hf_nmt_interp.analysis.symmetrization import HEURISTICS, flip
from hf_nmt_interp.attribution import AttentionWeights
from hf_nmt_interp.attribution.api import attribute
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.studies.best_attention import AttentionChoice, attention_error_rates
from hf_nmt_interp.text.tokens import TokenWords, encode_source, encode_target
from tests.reference.joint import combined, shared_links, sure_links
from tests.reference.symmetrization import grow_diag_final
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import ENGLISH, GERMAN

SPECIAL = [False, False, False, True]
SOURCE = TokenWords(["▁a", "b", "▁c", "</s>"], ["ab", "c"], [0, 0, 1, None], SPECIAL)
TARGET = TokenWords(["▁x", "▁y", "z", "</s>"], ["x", "yz"], [0, 1, 1, None], SPECIAL)
SCORES = np.array([[1, 2, 4, 50], [-1, -1, 2, 50], [1, 0, 4, 50], [9, 9, 9, 9]], dtype=np.float32)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_of):
    return tokenizer_of("marian")


@pytest.fixture(scope="module")
def model(tokenizer):
    return tiny_model("marian", vocab_size=len(tokenizer))


def test_scores_of_several_methods_are_those_of_each_alone(model, tokenizer):
    pairs = Pairs.force(model, tokenizer, ENGLISH[:3], GERMAN[:3])
    names = "attention:layer=0+smoothed_attention:smoothgrad=2+shifted_attention:layer=1,head=0+attention:layer=0"
    aligners = make_aligners(model, names)
    each = [token_scores([aligner], pairs) for aligner in aligners]
    for together, alone in zip(token_scores(aligners, pairs), zip(*each, strict=True), strict=True):
        for found, (expected,) in zip(together, alone, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_links_of_broken_models_are_refused(model, tokenizer):
    broken = copy.deepcopy(model)
    broken.get_decoder().layers[0].encoder_attn.q_proj.weight.data[0] = math.nan
    with pytest.raises(hni.InputError, match="attention returned NaN or inf; check the weights"):
        hni.align(broken, tokenizer, ENGLISH[:1], GERMAN[:1], method="attention:layer=0")
    mixed = copy.deepcopy(model)
    mixed.get_decoder().layers[0].double()
    with pytest.raises(hni.InputError, match=r"different dtypes, torch\.float32 and torch\.float64; convert it"):
        hni.align(mixed, tokenizer, ENGLISH[:1], GERMAN[:1], method="attention:layer=0")


def test_links_of_a_broken_head_are_refused():
    model, tokenizer = hni.load_demo("en-de")
    model.alignment_head.q_proj.weight.data[0] = math.nan
    with pytest.raises(hni.InputError, match="alignment_head returned NaN or inf"):
        hni.align(model, tokenizer, "I like tea.", "Ich mag Tee.")


class TestScores:
    def test_source_subwords_are_summed_and_target_subwords_averaged_without_special_tokens(self):
        np.testing.assert_allclose(word_scores(SCORES, SOURCE, TARGET), [[3, 4], [-0.5, 3]])

    def test_soft_alignment_clamps_words_not_subwords(self):
        np.testing.assert_allclose(normalise(word_scores(SCORES, SOURCE, TARGET)), [[3 / 7, 4 / 7], [0, 1]])

    def test_a_word_without_subwords_has_no_link(self):
        source = TokenWords(["▁a", "▁c"], ["a", "", "c"], [0, 2], [False, False])
        target = TokenWords(["▁x"], ["", "x"], [1], [False])
        scores = word_scores(np.array([[-2.0, -1.0]]), source, target)
        assert scores.tolist() == [[-math.inf] * 3, [-2.0, -math.inf, -1.0]]
        assert extract_links(scores) == {(2, 1)}
        assert extract_links(scores, "mutual") == extract_links(scores, "threshold") == set()

    def test_soft_alignment_of_a_result(self, model, tokenizer):
        result = attribute(model, tokenizer, ENGLISH[0], GERMAN[0], method="attention", punctuation="attached")
        soft = hni.soft_alignment(result)
        assert soft.shape == (len(GERMAN[0].split()), len(ENGLISH[0].split()))
        np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-5)
        with pytest.raises(hni.InputError, match="before to_words"):
            hni.soft_alignment(result.to_words())

    def test_dispersion_is_the_mean_entropy_of_all_target_words_with_mass(self):
        soft = [np.array([[0.5, 0.5], [0.0, 0.0]]), np.array([[1.0]]), np.zeros((0, 3))]
        assert hni.dispersion(soft) == pytest.approx(math.log(2) / 2)
        assert math.isnan(hni.dispersion([]))

    def test_dispersion_of_subwords_is_the_mean_of_the_sentences_means(self):
        one, other = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]), np.array([[0.5, 0.5]])
        assert subword_dispersion([one, other]) == pytest.approx(math.log(2) * 3 / 4)
        assert math.isnan(subword_dispersion([np.zeros((2, 2))]))


class TestExtraction:
    P = np.array([[0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.1, 0.2, 0.7]])

    @pytest.mark.parametrize(
        ("extraction", "links"),
        [
            ("argmax", {(0, 0), (0, 1), (2, 2)}),
            ("mutual", {(0, 1), (2, 2)}),
            ("threshold", {(0, 0), (1, 0), (0, 1), (2, 1), (2, 2)}),
            # 0.5, 0.6 and 0.7 / sqrt(1.2) and 0.3 / sqrt(0.6) are at least 0.3, but 0.3 / sqrt(1.2) is not
            ("shared", {(0, 0), (1, 0), (0, 1), (2, 2)}),
        ],
    )
    def test_by_hand(self, extraction, links):
        assert extract_links(self.P, extraction, threshold=0.3) == links

    def test_argmax_takes_the_best_even_if_all_scores_are_negative(self):
        assert extract_links(np.array([[-3.0, -1.0]])) == {(1, 0)}

    @given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.3, 0.5]))
    def test_shared_links_are_the_twin(self, seed, threshold):
        random = np.random.default_rng(seed)
        scores = random.normal(size=random.integers(1, 6, 2))
        assert extract_links(scores, "shared", threshold) == shared_links(scores.tolist(), threshold)
        assert extract_links(scores, "mutual") <= extract_links(scores, "shared", threshold)

    @pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
    @pytest.mark.parametrize("extraction", EXTRACTIONS)
    def test_nothing_to_align(self, shape, extraction):
        assert extract_links(np.zeros(shape), extraction) == set()

    def test_wrong_settings(self):
        with pytest.raises(hni.InputError, match="extraction: 'best' is not one of argmax"):
            extract_links(self.P, "best")
        with pytest.raises(hni.InputError, match="threshold: 0 must be above 0"):
            extract_links(self.P, "threshold", 0)


class TestAlign:
    def test_subword_argmax_unites_the_links_of_a_words_subwords(self):
        source = TokenWords(["a", "b", "c", "</s>"], ["ab", "c"], [0, 0, 1, None], [False, False, False, True])
        target = TokenWords(["x", "y", "z", "</s>"], ["xy", "z"], [0, 0, 1, None], [False, False, False, True])
        scores = np.array([[0.1, 0.3, 0.2, 0.9], [0.1, 0.3, 0.4, 0.9], [0.5, 0.1, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]])
        assert subword_links(scores, source, target) == {(0, 0), (1, 0), (0, 1)}  # merged, xy would have one link
        assert extract_links(word_scores(scores, source, target)) == {(0, 0), (0, 1)}

    def test_subword_argmax_of_a_model(self, model, tokenizer):
        settings = {"method": "attention", "extraction": "subword_argmax"}
        links = hni.align(model, tokenizer, ENGLISH[:2], GERMAN[:2], **settings)
        for found, source, target in zip(links, ENGLISH[:2], GERMAN[:2], strict=True):
            result = attribute(model, tokenizer, source, target, method="attention", punctuation="attached")
            assert found == subword_links(result.source, result.source_side, result.target_side)
        with pytest.raises(hni.InputError, match="extraction: 'subword_argmax' needs subword scores; use align"):
            extract_links(np.eye(2), "subword_argmax")

    def test_force_decoding_equals_the_soft_scores(self, model, tokenizer):
        links = hni.align(model, tokenizer, ENGLISH[:3], GERMAN[:3], method="attention")
        results = attribute(model, tokenizer, ENGLISH[:3], GERMAN[:3], method="attention", punctuation="attached")
        assert links == [extract_links(hni.soft_alignment(result)) for result in results]
        for pairs, target in zip(links, GERMAN, strict=False):
            assert sorted(j for _, j in pairs) == list(range(len(target.split())))
        assert hni.align(model, tokenizer, ENGLISH[1], GERMAN[1], method="attention") == links[1]

    def test_given_words_are_kept(self, model, tokenizer):
        source, target = ["Two", "children", "are", "\u200b", "."], ["Zwei", "Kinder", ".", ""]
        found = hni.align_words(model, tokenizer, [source], [target], method="attention")[0]
        assert (found.source_words, found.target_words) == (source, target)
        assert {j for _, j in found.links} == {0, 1, 2}

    def test_free_decoding_aligns_the_models_own_words(self, model, tokenizer):
        generate = {"max_new_tokens": 8, "num_beams": 2}
        found = hni.align_words(model, tokenizer, ENGLISH[:2], method="attention", generate=generate)
        results = attribute(
            model, tokenizer, ENGLISH[:2], method="attention", punctuation="attached", generate=generate
        )
        for alignment, result in zip(found, results, strict=True):
            assert alignment.target_words == result.target_side.words == alignment.target_text.split()
            np.testing.assert_allclose(alignment.soft, hni.soft_alignment(result), atol=1e-6)

    @pytest.mark.parametrize("blank", ["", " \t", [], ["", ""]])
    def test_a_side_without_words_has_no_links_and_is_not_translated(self, model, tokenizer, blank):
        sources, targets = [blank, ENGLISH[0], blank, ENGLISH[1]], [GERMAN[0], blank, blank, GERMAN[1]]
        links = hni.align(model, tokenizer, sources, targets, method="attention")
        assert links[:3] == [set()] * 3
        assert links[3] == hni.align(model, tokenizer, ENGLISH[1], GERMAN[1], method="attention")
        assert hni.align_words(model, tokenizer, [blank], method="attention")[0].target_words == []
        (found,) = hni.align_words(model, tokenizer, ["A dog."], [blank], punctuation="separate")
        assert found.source_words == ["A", "dog", "."]

    def test_encoded_sentences(self, model, tokenizer):
        pair = "Two dogs.", "Zwei Hunde."
        encoded = encode_source(tokenizer, pair[0]), encode_target(tokenizer, pair[1])
        for one, other in (pair, encoded), (("", pair[1]), (encode_source(tokenizer, ""), encoded[1])):
            by_text, by_ids = (hni.align_words(model, tokenizer, [s], [t], "attention")[0] for s, t in (one, other))
            assert (by_text.links, by_text.source_words) == (by_ids.links, by_ids.source_words)
            assert (by_text.target_words, by_text.target_text) == (by_ids.target_words, by_ids.target_text)

    def test_lrp_explains_the_label(self, model, tokenizer):
        pair = ENGLISH[:1], GERMAN[:1]
        lrp = attribute(model, tokenizer, *pair, method="lrp", logit="label", punctuation="attached")[0]
        found = hni.align_words(model, tokenizer, *pair, method="lrp")[0]
        np.testing.assert_allclose(found.soft, hni.soft_alignment(lrp), atol=1e-6)

    def test_order_does_not_depend_on_batches(self, model, tokenizer):
        alone = [hni.align(model, tokenizer, *pair, method="attention") for pair in zip(ENGLISH, GERMAN, strict=True)]
        assert hni.align(model, tokenizer, ENGLISH, GERMAN, method="attention", batch_size=3) == alone

    def test_wrong_input(self, model, tokenizer):
        with pytest.raises(hni.InputError, match="targets: 1 targets for 2 sources"):
            hni.align(model, tokenizer, ENGLISH[:2], GERMAN[:1], method="attention")
        with pytest.raises(hni.InputError, match="extraction"):
            hni.align(model, tokenizer, ENGLISH[:1], GERMAN[:1], method="attention", extraction="all")

    def test_settings_need_a_method(self, model, tokenizer):
        remedy = 'seed: 1 is a setting of a method, but no method is named; name one, e.g. method="smoothgrad"'
        for function in (hni.align, hni.align_words):
            with pytest.raises(hni.InputError, match=remedy):
                function(model, tokenizer, ENGLISH[:1], GERMAN[:1], seed=1)
        pairs = ENGLISH[:1], GERMAN[:1]
        named = hni.align(model, tokenizer, *pairs, method="saliency", smoothgrad=2)
        assert named == hni.align(model, tokenizer, *pairs, method="smoothgrad", smoothgrad=2)


links_of = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=14)


class TestSymmetrize:
    @given(links_of, links_of)
    def test_growing_equals_the_moses_description(self, forward, backward):
        for name, final in (("grow-diag", ""), ("grow-diag-final", "final"), ("grow-diag-final-and", "final-and")):
            twin = flip(grow_diag_final(flip(forward), flip(backward), 7, 6, final))
            assert hni.symmetrize(forward, backward, name) == twin

    @given(links_of, links_of)
    def test_each_lies_between_intersection_and_union(self, forward, backward):
        found = {name: hni.symmetrize(forward, backward, name) for name in HEURISTICS}
        assert found["intersection"] == forward & backward
        assert found["union"] == forward | backward
        for links in found.values():
            assert forward & backward <= links <= forward | backward
        assert found["grow-diag"] <= found["grow-diag-final-and"] & found["grow-diag-final"]

    def test_by_hand(self):
        forward, backward = {(0, 0), (1, 1), (3, 3), (5, 5)}, {(0, 0), (2, 1), (3, 2), (5, 4)}
        assert hni.symmetrize(forward, backward, "grow-diag") == {(0, 0), (1, 1), (2, 1), (3, 2), (3, 3)}
        final = {(0, 0), (1, 1), (2, 1), (3, 2), (3, 3), (5, 5), (5, 4)}
        assert hni.symmetrize(forward, backward) == final
        assert hni.symmetrize(forward, backward, "grow-diag-final-and") == final - {(5, 4)}

    def test_lists_and_errors(self):
        assert hni.symmetrize([(0, 0), (1, 1)], [(0, 0)], "intersection") == {(0, 0)}
        assert hni.symmetrize([{(0, 0)}, set()], [{(0, 0)}, {(1, 1)}], "union") == [{(0, 0)}, {(1, 1)}]
        with pytest.raises(hni.InputError, match="backward: 1 sentence pairs, but forward has 2"):
            hni.symmetrize([set(), set()], [set()])
        with pytest.raises(hni.InputError, match="heuristic: 'grow' is not one of intersection, union"):
            hni.symmetrize(set(), set(), "grow")


class TestBestAttention:
    def words(self, texts):
        return [text.split() for text in texts]

    def test_error_rates_equal_those_of_each_layer_and_head(self, model, tokenizer):
        sources, targets = self.words(ENGLISH[:4]), self.words(GERMAN[:4])
        gold = [{(j % 5, j) for j in range(len(target))} for target in targets]
        rates = attention_error_rates(model, tokenizer, sources, targets, gold, batch_size=3)
        assert len(rates) == 2 * 3 * 2  # layers, heads and their mean, plain and shifted
        for layer, head, shifted, aer in rates:
            settings = {"layer": layer, "head": head, "shifted": shifted}
            links = hni.align(model, tokenizer, sources, targets, "attention", **settings)
            assert aer == pytest.approx(hni.alignment_error_rate(links, gold)["aer"])
        assert (
            hni.best_attention(model, tokenizer, sources, targets, gold) == rates[0] == min(rates, key=lambda r: r[3])
        )

    def test_the_choice_travels_with_the_model_and_is_the_default(self, tokenizer, tmp_path):
        model = tiny_model("marian", vocab_size=len(tokenizer))
        sources, targets = self.words(ENGLISH[:2]), self.words(GERMAN[:2])
        gold = hni.align(model, tokenizer, sources, targets, "attention", layer=0, head=1, shifted=True)
        assert hni.best_attention(model, tokenizer, sources, targets, gold).aer == 0
        AttentionChoice(0, 1, True, 0.0).store(model)
        model.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path)
        assert hni.align(loaded, tokenizer, sources, targets) == gold
        assert hni.align(loaded, tokenizer, sources, targets, "attention", layer=-1, head=None, shifted=False) != gold
        default = AttentionWeights(loaded)
        assert (default.cross[0].core, default.head, default.shifted) == (
            loaded.model.decoder.layers[0].encoder_attn,
            1,
            True,
        )
        explicit = AttentionWeights(loaded, layer=-1, head=None, shifted=False)
        assert (explicit.cross[0].core, explicit.head, explicit.shifted) == (
            loaded.model.decoder.layers[-1].encoder_attn,
            None,
            False,
        )
        assert AttentionWeights(loaded, shifted=False).cross[0].core is loaded.model.decoder.layers[-1].encoder_attn

    def test_wrong_input(self, model, tokenizer):
        with pytest.raises(hni.InputError, match="gold: 0 pairs, but 1 sources and 1 targets"):
            hni.best_attention(model, tokenizer, ENGLISH[:1], GERMAN[:1], [])
        with pytest.raises(hni.InputError, match="development set"):
            hni.best_attention(model, tokenizer, [], [], [])
        gated = hni.GatedMarianMTModel(hni.GatedMarianConfig(**model.config.to_dict()))
        gated.set_kept_heads(gated.kept_heads() | {"cross": [[], []]})
        with pytest.raises(hni.InputError, match="no cross-attention heads left"):
            hni.best_attention(gated.prune(), tokenizer, ENGLISH[:1], GERMAN[:1], [{(0, 0)}])


class TestJoint:
    """Several methods, and two directions, in one alignment."""

    @pytest.mark.parametrize("least", [0.0, 0.3, 0.6])
    def test_links_are_those_of_the_definition(self, least):
        draw = np.random.default_rng(0)
        found = []
        for size in ((3, 4), (6, 5), (1, 7)):
            forward, backward = draw.normal(size=(2, *size)), draw.normal(size=(2, *size[::-1]))
            sides = [combined_scores(list(scores)) for scores in (forward, backward)]
            for scores, methods in zip(sides, (forward, backward), strict=True):
                np.testing.assert_allclose(np.maximum(scores, 0), combined(methods.tolist()))
            expected = sure_links(*([[max(0.0, x) for x in row] for row in s.tolist()] for s in sides), least)
            assert joint_links(*sides, "intersection", least=least) == expected
            found.append(expected)
        assert any(found)

    def test_more_is_asked_of_links_that_were_grown_too(self):
        forward, backward = np.array([[5.0, 4.0, 1.0]]), np.array([[1.0], [1.0], [1.0]])
        grown = [joint_links(forward, backward, "union", least=p) for p in (0, 0.6, 0.7, 0.8)]
        assert grown == [{(0, 0), (1, 0), (2, 0)}, {(0, 0), (1, 0)}, {(0, 0)}, set()]

    def test_one_method_keeps_its_scores(self):
        scores = np.array([[-3.0, -2.0]])
        assert combined_scores([scores]) is scores

    def test_methods_joined_by_plus(self, model, tokenizer):
        pairs, method = (ENGLISH[:3], GERMAN[:3]), "attention:layer=0+saliency:aggregate=li2016"
        alone = [
            hni.align_words(model, tokenizer, *pairs, method="attention", layer=0),
            hni.align_words(model, tokenizer, *pairs, method="saliency", aggregate="li2016"),
        ]
        both = hni.align_words(model, tokenizer, *pairs, method=method)
        for one, other, found in zip(*alone, both, strict=True):
            np.testing.assert_allclose(found.scores, np.sqrt(one.soft * other.soft), rtol=1e-5)
            assert found.links == extract_links(found.scores)

    def test_bad_names_and_settings(self, model, tokenizer):
        pairs = [ENGLISH[0]], [GERMAN[0]]
        with pytest.raises(hni.InputError, match="method: 'oracle' is not one of lrp, "):
            hni.align(model, tokenizer, *pairs, method="attention+oracle")
        with pytest.raises(hni.InputError, match="layer: with several methods, each needs its own"):
            hni.align(model, tokenizer, *pairs, method="attention+saliency", layer=0)
        with pytest.raises(hni.InputError, match=r"least: 1\.5 must be from 0 to 1"):
            joint_links(np.eye(2), np.eye(2), least=1.5)
