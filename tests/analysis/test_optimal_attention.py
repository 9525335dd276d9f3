"""Optimal attention against all weights of a grid, and the paper's counterexample."""

import pytest
import torch

from hf_nmt_interp.analysis.optimal_attention import optimal_attention
from hf_nmt_interp.analysis.probe import lexical_probe
from hf_nmt_interp.errors import InputError
from tests.reference import learning as reference
from tests.tiny_models import random_batch, tiny_model


def test_the_highest_probe_may_get_no_attention():
    gamma = torch.tensor([[0.0, 0, 0], [0, -10, 5], [0, 5, -10]], dtype=torch.float64)
    beta = gamma.softmax(-1)[:, 0]
    assert beta.argmax() == 0
    assert beta.tolist() == pytest.approx([1 / 3, 0.0067, 0.0067], abs=1e-4)  # eq. 30
    assert optimal_attention(gamma, torch.tensor(0)).tolist() == pytest.approx([0, 0.5, 0.5], abs=1e-4)


def test_no_weights_of_a_grid_are_better():
    gamma = 3 * torch.randn(20, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 5
    found = optimal_attention(gamma, labels)
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(20, dtype=torch.float64))
    inner = 0
    for alpha, logits, label in zip(found.tolist(), gamma.tolist(), labels.tolist(), strict=True):
        lowest, weights = reference.best_of_a_grid(logits, label, 50)
        assert reference.attended_loss(alpha, logits, label) <= lowest + 1e-8
        inner += max(weights) < 1
    assert inner > 3  # else one position would be all there is to find


def test_padding_gets_nothing_and_changes_nothing():
    gamma = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(1))
    labels, kept = torch.tensor([3, 0]), torch.tensor([[True, True, False, True], [True] * 4])
    found = optimal_attention(gamma, labels, kept)
    assert found[0, 2] == 0
    alone = optimal_attention(gamma[0, [0, 1, 3]], labels[0])
    torch.testing.assert_close(found[0, [0, 1, 3]], alone, atol=1e-3, rtol=0)


def test_a_linear_translator_never_does_better_than_with_optimal_attention():
    model = tiny_model("lstm", torch.float64, output="linear")
    batch = random_batch(model, [(5, 4), (3, 2)])
    probe = lexical_probe(model, **batch, vocabulary=True)
    real = batch["labels"] != -100
    labels = batch["labels"][real]
    kept = probe.kept[real]
    alpha = optimal_attention(probe.gamma[real], labels, kept)
    with torch.no_grad():
        own = -model(**batch).logits[real].log_softmax(-1).gather(-1, labels[:, None])[:, 0]
    logits = (alpha[:, None] @ probe.gamma[real])[:, 0]
    best = -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]
    assert (best < own).all()


def test_wrong_input_is_named():
    with pytest.raises(InputError, match=r"gamma \[3, 4\], labels \[2\], kept \[3\]: do not match; give"):
        optimal_attention(torch.zeros(3, 4), torch.zeros(2, dtype=torch.long))
    with pytest.raises(InputError, match="kept: has a row without positions; leave it out"):
        optimal_attention(torch.zeros(3, 4), torch.tensor(0), torch.zeros(3))
