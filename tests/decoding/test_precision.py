"""Products in bfloat16: values, gradients, and nothing left behind."""

import pytest
import torch
import torch.nn.functional as F

from hf_nmt_interp.decoding.precision import NarrowProducts, _Product, product_dtype
from hf_nmt_interp.training.losses import linear_cross_entropy
from tests.training.tiny_trainers import logged, make_trainer


def make_case():
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 3, 8), (5, 8), (5,)
    return [torch.randn(*shape, generator=generator, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("has_bias", [True, False])
def test_only_the_products_are_rounded(has_bias):
    x, weight, bias = make_case()
    bias = bias if has_bias else None
    with NarrowProducts(torch.bfloat16):
        y = F.linear(x, weight, bias)
    expected = (x.bfloat16().flatten(0, 1) @ weight.bfloat16().T).float().view(2, 3, 5) + (bias if has_bias else 0)
    assert torch.equal(y, expected)
    assert not torch.equal(y, F.linear(x, weight, bias))
    grad = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))
    y.backward(grad)
    rows = grad.bfloat16().flatten(0, 1)
    assert torch.equal(x.grad, (rows @ weight.bfloat16()).float().view_as(x))
    assert torch.equal(weight.grad, (rows.T @ x.bfloat16().flatten(0, 1)).float())
    assert not has_bias or torch.equal(bias.grad, grad.flatten(0, 1).sum(0))


def test_float64_is_a_check_of_the_gradients():
    x, weight, bias = (tensor.detach().double().requires_grad_() for tensor in make_case())
    assert torch.autograd.gradcheck(lambda *args: _Product.apply(*args, torch.float64), (x, weight, bias))


def test_frozen_weights_get_no_gradient_and_other_types_are_left_alone():
    x, weight, bias = make_case()
    with NarrowProducts(torch.bfloat16):
        F.linear(x, weight.detach(), bias.detach()).sum().backward()
        double = F.linear(x.double(), weight.double())
    assert x.grad is not None
    assert torch.equal(double, F.linear(x.double(), weight.double()))


def test_the_fused_loss_multiplies_in_bfloat16_too():
    hidden, weight, bias = make_case()
    labels = torch.tensor([[0, 1, -100], [4, 2, 3]])
    whole = linear_cross_entropy(hidden, weight, bias.detach(), labels, 0.1)
    with NarrowProducts(torch.bfloat16):
        narrow = linear_cross_entropy(hidden, weight, bias.detach(), labels, 0.1)
    assert narrow.dtype == torch.float32
    assert narrow.item() != whole.item()
    assert narrow.item() == pytest.approx(whole.item(), rel=0.02)
    for found, expected in zip(
        torch.autograd.grad(narrow, (hidden, weight)), torch.autograd.grad(whole, (hidden, weight)), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)


def test_nothing_is_left_behind_after_an_error():
    x, weight, _ = make_case()
    with pytest.raises(RuntimeError), NarrowProducts(torch.bfloat16):
        F.linear(x, weight[:, :3])
    assert product_dtype(weight) == torch.float32
    assert F.linear(x, weight).equal(x @ weight.T)


def test_training_is_close_and_evaluation_the_same(tmp_path):
    plain, narrow = (make_trainer(tmp_path / str(on), bf16_products=on) for on in (False, True))
    assert narrow.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]
    for trainer in (plain, narrow):
        trainer.train()
    losses = logged(plain), logged(narrow)
    assert losses[0] != losses[1]
    for step, loss in losses[0].items():
        assert losses[1][step] == pytest.approx(loss, rel=0.02)
