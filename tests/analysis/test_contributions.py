"""Statistics of contributions, on numbers worked out by hand and against their literal twins."""

import numpy as np
import pytest

from hf_nmt_interp.analysis.contributions import (
    STATISTICS,
    contribution_curves,
    contribution_entropy,
    mean_curve,
    position_influence,
)
from hf_nmt_interp.errors import InputError
from tests.made_up_results import EXAMPLE, random_result
from tests.reference import contributions as twin


def test_source_contribution_leaves_the_start_token_out():
    assert EXAMPLE.source_contribution == pytest.approx([1.0, 0.75, 0.25])


def test_source_part_counts_the_start_token():
    assert EXAMPLE.source_part == pytest.approx([1.0, 0.6, 0.2])


def test_entropies():
    first = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert STATISTICS["source_entropy"](EXAMPLE) == pytest.approx([first, np.log(2), np.log(2)])
    prefix_entropy = STATISTICS["prefix_entropy"](EXAMPLE)
    assert np.isnan(prefix_entropy[0])
    assert prefix_entropy[1:] == pytest.approx([0.0, np.log(2)], abs=1e-6)


def test_position_influence_is_scaled_to_a_mean_of_one():
    # (S / T) sum_t source[t, k] / sum_i source[t, i] = 2/3 (0.25 + 0.5 + 0.5), 2/3 (0.75 + 0.5 + 0.5)
    assert position_influence(EXAMPLE) == pytest.approx([2 / 3 * 1.25, 2 / 3 * 1.75])
    assert position_influence(EXAMPLE).mean() == pytest.approx(1.0)


@pytest.mark.parametrize("sizes", [(1, 1), (4, 3), (2, 6), (6, 6)], ids=str)
def test_statistics_agree_with_the_twin(sizes):
    for seed in range(5):
        result = random_result(*sizes, seed)
        source, prefix, start = (a.tolist() for a in (result.source, result.prefix, result.start))
        expected = {
            "source_contribution": twin.source_contribution(source, prefix),
            "source_part": twin.source_part(source, prefix, start),
            "source_entropy": twin.entropies(source),
            "prefix_entropy": twin.entropies(prefix),
            "position_influence": twin.position_influence(source),
        }
        assert set(expected) == set(STATISTICS)
        for name, values in expected.items():
            np.testing.assert_allclose(STATISTICS[name](result), values, atol=1e-6, err_msg=name)


def test_mean_curve_counts_sentences_that_reach_a_position():
    curve = mean_curve([np.array([1.0, np.nan]), np.array([2.0, 5.0]), np.array([6.0])])
    assert curve.count.tolist() == [3, 1]
    assert curve.mean == pytest.approx([3.0, 5.0])
    error = np.sqrt(((1 - 3) ** 2 + (2 - 3) ** 2 + (6 - 3) ** 2) / (3 * 2))  # of the mean of three
    assert curve.high[0] - curve.mean[0] == pytest.approx(1.96 * error)
    assert np.isnan(curve.low[1])


def test_confidence_interval_holds_the_true_mean_about_95_times_in_100():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        curve = mean_curve([generator.normal(0.5, 0.2, size=1) for _ in range(50)])
        hits += bool(curve.low[0] <= 0.5 <= curve.high[0])
    assert 0.91 < hits / 400 < 0.98


def test_curves_of_a_data_set():
    curves = contribution_curves([EXAMPLE, EXAMPLE])
    assert set(curves) == {*STATISTICS}
    assert curves["source_contribution"].mean == pytest.approx([1.0, 0.75, 0.25])
    assert curves["prefix_entropy"].count.tolist() == [0, 2, 2]


def test_no_results():
    with pytest.raises(InputError, match="results: none given"):
        contribution_curves([])


def test_entropy_of_signed_contributions_is_refused():
    with pytest.raises(InputError, match="some are negative; entropies need a method without signs"):
        contribution_entropy(np.array([[0.5, -0.1]]))
