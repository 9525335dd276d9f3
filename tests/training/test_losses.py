"""The cross entropy in one piece and in chunks, against each other and against the literal twin."""

import pytest
import torch

from hf_nmt_interp.training import losses
from hf_nmt_interp.training.losses import label_smoothed_cross_entropy, linear_cross_entropy
from tests.reference.losses import linear_logits, smoothed_cross_entropy

D, V = 3, 7


def random_case(rows, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((2, rows // 2, D), (V, D), (V,))
    )
    labels = torch.randint(V, (2, rows // 2), generator=generator)
    labels[:, ::3] = -100
    return hidden.requires_grad_(), weight.requires_grad_(), bias, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_both_losses_are_the_twin(smoothing):
    hidden, weight, bias, labels = random_case(10)
    logits = linear_logits(hidden.flatten(0, 1).tolist(), weight.tolist(), bias.tolist())
    expected = smoothed_cross_entropy(logits, labels.flatten().tolist(), smoothing)
    assert linear_cross_entropy(hidden, weight, bias, labels, smoothing).item() == pytest.approx(expected, rel=1e-12)
    whole = label_smoothed_cross_entropy(hidden @ weight.T + bias, labels, smoothing)
    assert whole.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rows", [2, 4, 6, 8, 20])  # labelled rows: below, at and over one chunk, several chunks
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunks_give_the_values_and_gradients_of_the_whole(rows, smoothing, monkeypatch):
    monkeypatch.setattr(losses, "_ROWS", 4)
    hidden, weight, bias, labels = random_case(rows)
    chunked = linear_cross_entropy(hidden, weight, bias, labels, smoothing)
    whole = label_smoothed_cross_entropy(hidden @ weight.T + bias, labels, smoothing)
    torch.testing.assert_close(chunked, whole)
    # a factor shows whether the gradient that comes in is used
    found, expected = (torch.autograd.grad(3 * loss, (hidden, weight)) for loss in (chunked, whole))
    torch.testing.assert_close(found, expected)


def test_more_rows_than_the_real_chunk_in_float32():
    hidden, weight, bias, labels = random_case(2 * losses._ROWS + 10, torch.float32)
    assert (labels != -100).sum() > losses._ROWS
    chunked = linear_cross_entropy(hidden, weight, bias, labels, 0.1)
    torch.testing.assert_close(chunked, label_smoothed_cross_entropy(hidden @ weight.T + bias, labels, 0.1))


def test_gradients_against_finite_differences(monkeypatch):
    monkeypatch.setattr(losses, "_ROWS", 2)
    hidden, weight, bias, labels = random_case(6)
    assert torch.autograd.gradcheck(lambda h, w: linear_cross_entropy(h, w, bias, labels, 0.1), (hidden, weight))


def test_no_labelled_row_gives_zero_and_no_gradient():
    hidden, weight, bias, labels = random_case(6)
    loss = linear_cross_entropy(hidden, weight, bias, torch.full_like(labels, -100), 0.1)
    loss.backward()
    assert loss.item() == 0
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_ignored_positions_change_nothing():
    hidden, weight, bias, labels = random_case(10)
    other = torch.where((labels == -100)[..., None], 1e3, hidden.detach())
    for smoothing in (0.0, 0.1):
        before = linear_cross_entropy(hidden, weight, bias, labels, smoothing)
        torch.testing.assert_close(linear_cross_entropy(other, weight, bias, labels, smoothing), before)
    (gradient,) = torch.autograd.grad(before, hidden)
    assert not gradient[labels == -100].any()
    assert gradient[labels != -100].any(-1).all()


def test_weights_of_positions(monkeypatch):
    monkeypatch.setattr(losses, "_ROWS", 4)
    hidden, weight, bias, labels = random_case(20)
    factors = torch.linspace(-2, 3, 20, dtype=torch.float64).reshape(2, 10)
    logits = hidden @ weight.T + bias
    by_position = torch.nn.functional.cross_entropy(logits.mT, labels, label_smoothing=0.1, reduction="none")
    whole = (factors * by_position).sum()
    chunked = linear_cross_entropy(hidden, weight, bias, labels, 0.1, factors)
    torch.testing.assert_close(chunked, whole)
    found, expected = (torch.autograd.grad(3 * loss, (hidden, weight)) for loss in (chunked, whole))
    torch.testing.assert_close(found, expected)
