"""Explanations as plain data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from hf_nmt_interp.report.records import best_earlier, best_sources, record, scores, shares
from tests.made_up_results import EXAMPLE, make_result


def test_record_is_json_and_complete(result) -> None:
    found = json.loads(json.dumps(record(result), allow_nan=False))
    assert found["source_words"] == ["A", "cat", "sleeps"]
    assert found["target_word_ids"] == [0, 1, 2, 2, None]
    assert found["source_special"] == [False] * 4 + [True]
    np.testing.assert_allclose(found["source"], result.source, rtol=1e-6)
    np.testing.assert_allclose(found["source_contribution"], result.source_contribution, rtol=1e-6)


def test_record_has_none_for_undefined_numbers(result) -> None:
    source = result.source.copy()
    source[1] = np.nan
    found = record(replace(result, source=source, conservation_gap=float("nan"), log_probs=None))
    assert found["source"][1] == [None] * 5
    assert found["source_contribution"][1] is None
    assert (found["conservation_gap"], found["log_probs"]) == (None, None)


@pytest.mark.parametrize("level", ["token", "word"])
def test_scores_add_up(result, level) -> None:
    result = result.to_words() if level == "word" else result
    rows = list(scores(result))
    for step in range(len(result.start)):
        assert sum(float(row["score"]) for row in rows if row["step"] == step) == pytest.approx(1, abs=1e-5)
    assert rows[0] | {"score": ""} == {
        "step": 0, "target": result.target_tokens[0], "side": "source", "position": 0,
        "token": result.source_tokens[0], "score": "",
    }  # fmt: skip


def test_best_source_is_never_special(result) -> None:
    assert [found and found[0] for found in best_sources(result.to_words())] == [0, 1, 2, 2]  # not EOS for EOS
    first = best_sources(result)[0]
    assert first is not None
    assert first[1] == pytest.approx(1.1 / 1.4)
    assert best_sources(make_result(["</s>"], ["▁Ach", "</s>"])) == [None, None]
    assert best_sources(replace(result, source=-result.source)) == [None] * 5


def test_shares_only_for_methods_with_a_total(result) -> None:
    assert shares(result) is not None
    assert shares(replace(result, method="attention")) is None


def test_earlier_words_are_named_where_the_source_has_little() -> None:
    # source shares 1, 0.75 and 0.25; step 2: 0.3 from each of both words before, the first of equals is named
    lrp = replace(EXAMPLE, method="lrp")
    assert best_earlier(lrp) == [None, None, (0, 0.5)]
    assert best_earlier(replace(EXAMPLE, method="attention")) == [None] * 3
    most = replace(lrp, source=lrp.source * 100)
    assert best_earlier(most) == [None] * 3
    own = np.array([[0, 0, 0], [0.1, 0.9, 0], [0.3, 0.4, 0.9]])  # a word's own first subwords are not earlier words
    assert best_earlier(replace(lrp, prefix=own))[1:] == [(0, 1.0), (1, pytest.approx(0.4 / 0.7))]
