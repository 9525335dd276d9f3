"""IBM Model 1 against its twin, by hand, and on text that is streamed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_nmt_interp.analysis import ibm1
from hf_nmt_interp.analysis.ibm1 import IBM1
from hf_nmt_interp.errors import InputError
from tests.reference import learning as twin

# figure 1 of the paper, its two sentences
FILM = [
    (["Dieser", "Film", "ist", "großartig"], ["This", "movie", "is", "great"]),
    (["Dieser", "Film", "ist", "schlecht"], ["This", "movie", "is", "bad"]),
]
sides = st.lists(st.sampled_from("abcde"), min_size=1, max_size=4)
corpora = st.lists(st.tuples(sides, sides), min_size=1, max_size=6)


@given(corpora, st.integers(1, 4), st.sampled_from([1, 2, 1000]))
def test_equals_its_twin(corpus, iterations, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ibm1, "_CHUNK", chunk)
        found = IBM1(corpus, iterations)
    expected = twin.expectation_maximisation(corpus, iterations)
    first, table = IBM1(corpus), twin.counts(corpus)
    for x in "abcde":
        for y in "abcde":
            assert found.translation(x, y) == pytest.approx(expected.get((x, y), 0.0), abs=1e-12)
            assert first.count(x, y) == pytest.approx(table.get((x, y), 0.0), abs=1e-12)
    for source, target in corpus:
        np.testing.assert_allclose(found.align(source, target), twin.alignment(expected, source, target), atol=1e-12)


def test_counts_of_figure_1_by_hand():
    model = IBM1(FILM)
    assert model.count("Film", "movie") == 0.5
    assert model.count("großartig", "bad") == 0
    assert model.translation("Film", "movie") == 0.25
    assert model.translation("großartig", "great") == 0.25
    assert model.align(*FILM[0])[3].tolist() == pytest.approx([1 / 5.0, 1 / 5, 1 / 5, 2 / 5])  # great: großartig
    assert model.best("großartig", 2) == [("This", 0.25), ("movie", 0.25)]


def test_more_iterations_make_alignments_sharper():
    blurred, sharp = (IBM1(FILM, iterations).align(*FILM[0])[3, 3] for iterations in (1, 10))
    assert sharp > 0.9 > 0.4 >= blurred


def test_permutations_tell_nothing():
    words = list("ABCDEFGH")
    generator = np.random.default_rng(0)
    corpus = [(list(order), list(order)) for order in (generator.permutation(words) for _ in range(20))]
    found = IBM1(corpus, iterations=3)
    np.testing.assert_allclose(found.align(words, words), 1 / 8)  # section 3.3: the hard distribution


def test_it_is_what_the_proxy_starts_to_learn():
    """Equation 15: the proxy's first gradient is 2 (C - mean of C over outputs), for many units."""
    generator = torch.Generator().manual_seed(0)
    corpus = [
        (torch.randint(6, (4,), generator=generator).tolist(), torch.randint(7, (3,), generator=generator).tolist())
        for _ in range(5)
    ]
    d, model = 200_000, IBM1(corpus)
    e, W = (torch.randn(n, d, generator=generator, dtype=torch.float64) / d**0.5 for n in (6, 7))
    e.requires_grad_(), W.requires_grad_()
    loss = sum(-((W @ e[x].mean(0)).log_softmax(-1)[y]).sum() for x, y in corpus)
    to_e, to_W = torch.autograd.grad(loss, (e, W))
    speed = -(to_e @ W.T + e @ to_W.T).detach()  # [6, 7] of e_i . W_o under gradient flow
    C = torch.tensor([[model.count(i, o) for o in range(7)] for i in range(6)], dtype=torch.float64)
    torch.testing.assert_close(speed, 2 * (C - C.mean(-1, keepdim=True)), atol=0.05, rtol=0)


def test_counts_of_figure_5_by_hand():
    model = IBM1([(["great", "movie"], ["positive"]), (["bad", "movie"], ["negative"])])
    assert [model.translation(word, "positive") for word in ("great", "bad", "movie")] == [1, 0, 0.5]
    assert model.align(["great", "movie"], ["positive"]).tolist() == [pytest.approx([2 / 3, 1 / 3])]


def test_counts_of_figure_8_are_equal_inside_a_set():
    mixture = [(list(order), list(order)) for order in ("ABCD", "DCBA", "FGEH", "HGFE")]
    model = IBM1(mixture)
    assert {model.translation(x, y) for x in "ABCD" for y in "ABCD"} == {0.25}
    assert {model.translation(x, y) for x in "ABCD" for y in "EFGH"} == {0}


def test_words_that_never_met():
    model = IBM1(FILM)
    assert model.translation("Haus", "movie") == model.translation("Film", "house") == 0
    assert model.align(["Haus", "Film"], ["house", "movie"]).tolist() == [[0.5, 0.5], [0, 1]]


def test_a_stream_is_read_once_and_in_pieces():
    held = []

    def stream():
        for number in range(2500):
            held.append(number)
            yield [f"x{number % 50}"], [f"y{number % 50}"]

    model = IBM1(stream())
    assert held == list(range(2500))
    assert len(model.keys) == 50  # sparse: only pairs that occur
    assert model.count("x7", "y7") == 50


def test_wrong_input_is_named():
    with pytest.raises(InputError, match="iterations: 0 must be at least 1"):
        IBM1(FILM, 0)
    with pytest.raises(InputError, match="pairs: an iterator can be read once, not 2 times"):
        IBM1(iter(FILM), 2)
    with pytest.raises(InputError, match="pairs: no pair has words on both sides"):
        IBM1([([], ["a"])])
    with pytest.raises(InputError, match="source: 'Haus' is not a source word of the corpus"):
        IBM1(FILM).best("Haus")
