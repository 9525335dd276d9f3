"""Alignment error rate by hand and as an `evaluate` module.

Also for metrics/aer/aer.py and metrics/aer/rate.py.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hf_nmt_interp as hni
from hf_nmt_interp.metrics import aer as folder
from hf_nmt_interp.metrics.aer.rate import error_margin
from hf_nmt_interp.text.pharaoh import format_links

links = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6)


def test_by_hand_over_the_corpus():
    # A = 3 + 1 links, S = 2 + 1; A and S: 1 + 0, A and P: 2 + 1
    rates = hni.alignment_error_rate(
        hypotheses=[{(0, 0), (1, 1), (2, 2)}, {(0, 1)}],
        sure=[{(0, 0), (3, 3)}, {(0, 0)}],
        possible=[{(1, 1)}, {(0, 1)}],
    )
    assert rates == {"aer": pytest.approx(1 - (1 + 3) / (4 + 3)), "precision": 3 / 4, "recall": pytest.approx(1 / 3)}


@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=4))
def test_equals_counting_link_by_link(corpus):
    hypotheses, sure, possible = (list(column) for column in zip(*corpus, strict=True))
    counts = dict.fromkeys(("A", "S", "AS", "AP"), 0)
    for A, S, P in corpus:
        for i in range(4):
            for j in range(4):
                a, s = (i, j) in A, (i, j) in S
                p = s or (i, j) in P
                counts["A"] += a
                counts["S"] += s
                counts["AS"] += a and s
                counts["AP"] += a and p
    rates = hni.alignment_error_rate(hypotheses, sure, possible)
    total = counts["A"] + counts["S"]
    assert rates["aer"] == pytest.approx(1 - (counts["AS"] + counts["AP"]) / total if total else 0)
    assert rates["precision"] == pytest.approx(counts["AP"] / counts["A"] if counts["A"] else 1)
    assert rates["recall"] == pytest.approx(counts["AS"] / counts["S"] if counts["S"] else 1)


@given(st.lists(links, min_size=1, max_size=3))
def test_a_gold_alignment_has_no_error(gold):
    assert hni.alignment_error_rate(gold, gold) == {"aer": 0, "precision": 1, "recall": 1}


def test_the_margin_is_that_of_a_literal_bootstrap():
    rng = np.random.default_rng(1)
    gold, more, found = (
        [{(int(i), int(j)) for i, j in rng.integers(4, size=(n, 2))} for _ in range(6)] for n in (3, 4, 4)
    )
    margin = error_margin(found, gold, more, samples=200)
    drawn = np.random.default_rng(0).integers(6, size=(200, 6))
    rates = [hni.alignment_error_rate(*([side[i] for i in d] for side in (found, gold, more)))["aer"] for d in drawn]
    low, high = np.quantile(rates, (0.025, 0.975))
    assert margin == pytest.approx((high - low) / 2)
    assert margin > 0.01
    assert error_margin(found, gold, samples=200) == error_margin(found, gold, gold, samples=200) != margin


def test_pairs_without_links_have_no_error_and_no_margin():
    assert error_margin([set(), set()], [set(), set()]) == 0


def test_one_pair_has_no_margin():
    assert error_margin([{(0, 0)}], [{(0, 1)}]) is error_margin([], []) is None


def test_lists_of_lists_are_links_too():
    assert hni.alignment_error_rate([[(0, 0), (0, 0)]], [[(0, 0)]])["aer"] == 0


@pytest.mark.parametrize("links", ["0-0", {0, 1}, {(0,)}, {(0, 0, 0)}, [[0, 0]]])
def test_other_things_are_no_links(links):
    with pytest.raises(hni.InputError, match=r"links\[1\]: .* is not a pair \(source word, target word\)"):
        hni.alignment_error_rate([{(0, 0)}, links], [{(0, 0)}, {(0, 0)}])


def test_the_corpora_must_have_the_same_size():
    with pytest.raises(hni.InputError, match="sure: 1 sentence pairs, but hypotheses has 2"):
        hni.alignment_error_rate([set(), set()], [set()])


def test_evaluate_loads_it_from_its_folder(tmp_path, monkeypatch):
    evaluate = pytest.importorskip("evaluate")
    monkeypatch.setattr("evaluate.config.HF_EVALUATE_OFFLINE", True)
    metric = evaluate.load(str(Path(folder.__file__).parent), cache_dir=str(tmp_path))
    hypotheses, sure, possible = [{(0, 0), (1, 1)}, {(2, 0)}], [{(0, 0), (2, 1)}, set()], [{(1, 1)}, {(2, 0)}]
    rates = metric.compute(
        predictions=[format_links(line) for line in hypotheses],
        references=[format_links(s, p, base=1) for s, p in zip(sure, possible, strict=True)],
        base=1,
    )
    assert rates == hni.alignment_error_rate(hypotheses, sure, possible)
    assert metric.primary in rates
    with pytest.raises(hni.InputError, match=r"predictions\[1\]: 'x' is not a link"):
        metric.compute(predictions=["", "x"], references=["", ""])
