"""Candidate sets, P~ and expected risk against their literal twins."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_nmt_interp.analysis.distributions import entropy
from hf_nmt_interp.training.expected_risk import candidate_probabilities, candidate_set, expected_risk, risk_weights
from tests.reference import risk as twin

ids = st.lists(st.integers(0, 2), min_size=1, max_size=3)
numbers = st.lists(
    st.tuples(st.floats(-30, 0), st.floats(-1, 1), st.integers(1, 9)), min_size=1, max_size=5
)  # log P, risk, length of each candidate


@given(st.lists(ids, min_size=1, max_size=8), st.none() | ids)
def test_candidate_set_is_the_twin(samples, reference):
    assert [list(found) for found in candidate_set(samples, reference)] == twin.unique(samples, reference)


@given(st.lists(numbers, min_size=1, max_size=3), st.sampled_from([0.005, 0.5, 1.0]), st.booleans())
def test_risk_and_its_gradient_are_the_twins(sets, alpha, normalised):
    log_probs, risks, lengths = ([[c[i] for c in found] for found in sets] for i in range(3))
    found, weights, shares = risk_weights(log_probs, risks, alpha, lengths if normalised else None)
    for row in range(len(sets)):
        arguments = log_probs[row], risks[row], alpha, lengths[row] if normalised else None
        assert found[row].item() == pytest.approx(twin.risk(*arguments), abs=1e-12)
        assert weights[row] == pytest.approx(twin.risk_gradient(*arguments), abs=1e-8)
        expected = twin.sharpened(log_probs[row], alpha, arguments[-1])
        size = len(expected)
        assert shares[row, :size].tolist() == pytest.approx(expected)
        assert not shares[row, size:].any()


@given(numbers, st.sampled_from([0.0, 0.1, -0.37]))
def test_equal_risks_have_no_gradient_at_all(candidates, constant):
    log_probs = [[c[0] for c in candidates]]
    risk, weights, _ = risk_weights(log_probs, [[constant] * len(candidates)], alpha=0.7)
    assert risk.item() == constant
    assert weights == [[0.0] * len(candidates)]


def test_sharpness_goes_from_equal_shares_to_the_best_one():
    log_probs, kept = torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[True, True, True]])
    assert candidate_probabilities(log_probs, kept, 1e-9)[0].tolist() == pytest.approx([1 / 3] * 3)
    assert candidate_probabilities(log_probs, kept, 100.0)[0].tolist() == pytest.approx([1, 0, 0])
    assert entropy(torch.tensor([[0.25] * 4, [1.0, 0, 0, 0]])).tolist() == pytest.approx([1.3863, 0], abs=1e-4)
    assert expected_risk(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[-1.0, 0.0, 9.0]])).item() == -0.5
