"""The stepwise aligner against its twin, on text whose links are known, and on real text."""

from itertools import islice
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.stepwise import StepwiseAligner, diagonal_prior, stepwise_links
from hf_nmt_interp.text.corpus import read_lines, read_parallel
from hf_nmt_interp.text.pharaoh import read_gold
from hf_nmt_interp.text.spelling import new_spelling
from hf_nmt_interp.text.tokens import separate_punctuation
from tests.made_up_corpus import ADJECTIVES, ARTICLES, NOUNS, VERBS, made_up_pairs
from tests.reference.stepwise import Aligner

sides = st.lists(st.sampled_from("abcde"), max_size=4)
corpora = st.lists(st.tuples(sides, sides), min_size=1, max_size=6).filter(lambda pairs: any(map(all, pairs)))
settings = st.tuples(
    st.integers(1, 3), st.integers(1, 4), st.sampled_from([0.5, 0.7, 1.0]), st.sampled_from([0.0, 4.0]), st.just(0.08)
)


@given(corpora, settings, st.sampled_from([0.01, 0.5]))
def test_equals_its_twin(corpus, chosen, smoothing):
    found, expected = StepwiseAligner(corpus, *chosen, smoothing), Aligner(corpus, *chosen, smoothing)
    numbers = {0: None} | {number: word for word, number in found.sources.items() if number}
    targets = list(found.targets)
    means = {
        (numbers[k >> 32], targets[k & (2**32 - 1)]): m for k, m in zip(found.keys.tolist(), found.means, strict=True)
    }
    assert means == pytest.approx(dict(expected.means), abs=1e-12)
    for source, target in [*corpus, (["a", "never"], ["b", "seen", "c"])]:
        if source and target:
            np.testing.assert_allclose(found.align(source, target), expected.posteriors(source, target), atol=1e-10)


def test_prior():
    prior = diagonal_prior(3, 5, 4.0, 0.1)
    np.testing.assert_allclose(prior.sum(1), 1)
    assert prior[:, 0].tolist() == [0.1] * 3
    assert prior[:, 1:].argmax(1).tolist() == [1, 2, 4]  # positions 2, 3, 5 of 5 are nearest to 1/3, 2/3, 1


def test_words_of_a_made_up_language_are_linked_in_any_order():
    dictionary = {*NOUNS, *ARTICLES, *ADJECTIVES, *VERBS, (".", ".")}
    rng = Random(1)
    corpus = [(source.split(), target.split()) for source, target in made_up_pairs(300)]
    for _, target in corpus:
        rng.shuffle(target)
    model = StepwiseAligner(corpus, passes=10, batch_size=50, tension=0)
    links = [[(source[i], target[j]) for i, j in model.links(source, target)] for source, target in corpus]
    right = sum(pair in dictionary for found in links for pair in found)
    assert right >= 0.95 * sum(len(target) for _, target in corpus)


def test_links_of_both_directions():
    pairs = made_up_pairs(200)
    forward, backward = stepwise_links(pairs[:10], pairs[10:])
    online, _ = stepwise_links([(source.upper(), target) for source, target in pairs[:10]], pairs, online=True)
    assert forward == backward == [{(n, n) for n in range(len(source.split()))} for source, _ in pairs[:10]]
    assert forward == online  # case does not matter


def test_an_iterator_is_enough_for_one_pass():
    corpus = [("ab", "xy"), ("a", "x"), ("", "x")]
    one = StepwiseAligner(iter(corpus), passes=1)
    assert one.links("b", "y") == {(0, 0)}
    assert one.links("", "y") == set()
    with pytest.raises(hni.InputError, match="pairs: an iterator can be read once, not 2 times; give a list"):
        StepwiseAligner(iter(corpus), passes=2)
    with pytest.raises(hni.InputError, match="pairs: no pair has words on both sides"):
        StepwiseAligner([("", "x")])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("passes", 0, "passes: 0 must be at least 1"),
        ("batch_size", 0, "batch_size: 0 must be at least 1"),
        ("power", 0.4, "power: 0.4 must be from 0.5 to 1"),
        ("tension", -1, "tension: -1 must be at least 0"),
        ("null", 1, "null: 1 must be from 0 to 0.99"),
        ("smoothing", 0, "smoothing: 0 must be at least 1e-06"),
    ],
)
def test_wrong_settings(name, value, message):
    with pytest.raises(hni.InputError, match=message):
        StepwiseAligner([("a", "x")], **{name: value})


@pytest.mark.data
def test_quality_on_real_text(data_dir):
    gold, train = data_dir / "gold_de-en", data_dir / "europarl_en-de"
    pairs = list(read_parallel(gold / "dev.de", gold / "dev.en"))
    sure, possible = read_gold(gold / "dev.gold", 0, pairs)
    texts = [read_lines(train / f"train.{language}") for language in ("de", "en")]
    mapped = [new_spelling(side, text) for side, text in zip(zip(*pairs, strict=True), texts, strict=True)]
    lines = islice(read_parallel(train / "train.de", train / "train.en"), 50_000)
    text = [(separate_punctuation(source), separate_punctuation(target)) for source, target in lines]
    links = stepwise_links(list(zip(*mapped, strict=True)), text, online=True)
    found = [hni.alignment_error_rate(x, sure, possible)["aer"] for x in (*links, hni.symmetrize(*links, "grow-diag"))]
    assert found == pytest.approx([0.315, 0.340, 0.285], abs=0.005)
