"""Hard Concrete gates against their twin in plain math, against sampling, and their gradient."""

import itertools

import pytest
import torch

from hf_nmt_interp.models.gated.gates import GatedLinear, HardConcreteGate
from tests.reference import gates as reference

GRID = list(itertools.product([-3.0, -0.7, 0.2, 1.0, 3.0], [0.33, 0.8], [(-0.1, 1.1), (-0.3, 1.05)]))


def gate_of(log_alpha, temperature=0.33, stretch=(-0.1, 1.1), heads=1):
    return HardConcreteGate(heads, temperature, stretch, init=log_alpha)


@pytest.mark.parametrize(("log_alpha", "temperature", "stretch"), GRID)
def test_closed_forms_agree_with_the_twin(log_alpha, temperature, stretch):
    gate = gate_of(log_alpha, temperature, stretch, heads=3)
    for name in ["p_zero", "p_one", "expectation", "test_value"]:
        expected = getattr(reference, name)(log_alpha, temperature, *stretch)
        assert getattr(gate, name)().tolist() == pytest.approx([expected] * 3, abs=2e-6), name
    assert gate.penalty().item() == pytest.approx(reference.penalty([log_alpha] * 3, temperature, *stretch), abs=2e-6)


@pytest.mark.parametrize(("log_alpha", "temperature", "stretch"), GRID)
def test_samples_agree_with_probabilities_and_mean(log_alpha, temperature, stretch):
    torch.manual_seed(0)
    n = 200_000
    draws = gate_of(log_alpha, temperature, stretch, heads=n).sample().detach()
    for share, p in [
        (draws == 0, reference.p_zero(log_alpha, temperature, *stretch)),
        (draws == 1, reference.p_one(log_alpha, temperature, *stretch)),
    ]:
        # five standard errors, and one draw for probabilities too small to be seen
        assert share.double().mean().item() == pytest.approx(p, abs=5 * (p * (1 - p) / n) ** 0.5 + 1 / n)
    expected = reference.expectation(log_alpha, temperature, *stretch)
    assert draws.double().mean().item() == pytest.approx(expected, abs=5 * draws.std().item() / n**0.5)


@pytest.mark.parametrize(("log_alpha", "temperature", "stretch"), GRID)
def test_sample_is_the_twin_of_its_noise_and_has_its_gradient(log_alpha, temperature, stretch):
    gate = gate_of(log_alpha, temperature, stretch, heads=50)
    torch.manual_seed(3)
    noise = torch.rand(50).tolist()
    torch.manual_seed(3)
    draw = gate.sample()
    draw.sum().backward()
    assert draw.tolist() == pytest.approx(
        [reference.gate(u, log_alpha, temperature, *stretch) for u in noise], abs=1e-5
    )
    expected = [reference.gradient(u, log_alpha, temperature, *stretch) for u in noise]
    assert gate.log_alpha.grad.tolist() == pytest.approx(expected, abs=1e-4)


def test_twin_gradient_is_the_difference_quotient():
    for u, (log_alpha, temperature, stretch) in itertools.product([0.1, 0.4, 0.8], GRID):
        h = 1e-6
        above, below = (reference.gate(u, log_alpha + sign * h, temperature, *stretch) for sign in (1, -1))
        expected = reference.gradient(u, log_alpha, temperature, *stretch)
        assert (above - below) / (2 * h) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("method", ["penalty", "expectation"])
def test_gradient_of_penalty_and_expectation_is_numerically_right(method):
    log_alphas, h = [-2.0, 0.3, 2.5], 1e-4
    gate = HardConcreteGate(3)
    gate.log_alpha.data = torch.tensor(log_alphas)
    getattr(gate, method)().sum().backward()
    if method == "penalty":
        slopes = [
            (reference.penalty([a + h], 0.33, -0.1, 1.1) - reference.penalty([a - h], 0.33, -0.1, 1.1))
            for a in log_alphas
        ]
    else:
        slopes = [
            (reference.expectation(a + h, 0.33, -0.1, 1.1) - reference.expectation(a - h, 0.33, -0.1, 1.1))
            for a in log_alphas
        ]
    assert gate.log_alpha.grad.tolist() == pytest.approx([slope / (2 * h) for slope in slopes], abs=1e-4)


def test_one_draw_for_all_tokens_and_a_new_one_each_pass():
    torch.manual_seed(0)
    gate = gate_of(0.0, heads=8).train()
    ones = torch.ones(3, 5, 8 * 2)
    first, second = gate(ones), gate(ones)
    assert torch.equal(first, first[:1, :1].expand_as(first))
    assert torch.equal(first[..., 0::2], first[..., 1::2])  # the units of a head share its gate
    assert not torch.equal(first, second)


def test_eval_mode_is_exactly_zero_or_one_and_draws_nothing():
    gate = HardConcreteGate(3).eval()
    gate.log_alpha.data = torch.tensor([0.5, -0.5, 3.0])
    state = torch.random.get_rng_state()
    out = gate(torch.ones(2, 6))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert out.tolist() == [[1, 1, 0, 0, 1, 1]] * 2


def test_default_gates_are_open():
    gate = HardConcreteGate(5)
    assert gate.test_value().tolist() == [1.0] * 5
    assert gate.expectation().min() > 0.94


def test_gradient_through_the_gated_projection():
    torch.manual_seed(0)
    linear = GatedLinear(6, 4)
    linear.gate = gate_of(0.2, heads=3)
    x = torch.randn(2, 6)

    def loss(log_alpha):
        linear.gate.log_alpha.data = log_alpha.float()
        torch.manual_seed(1)
        return linear(x).square().sum()

    start = torch.tensor([0.2, -0.1, 0.4])
    loss(start).backward()
    h = 1e-2
    for head in range(3):
        step = torch.eye(3)[head] * h
        slope = (loss(start + step) - loss(start - step)).item() / (2 * h)
        assert linear.gate.log_alpha.grad[head].item() == pytest.approx(slope, rel=1e-2, abs=1e-3)
    assert linear.gate.log_alpha.grad.abs().max() > 0


def test_gates_compute_in_float32_for_a_bfloat16_model():
    gate = HardConcreteGate(4).to(torch.bfloat16).train()
    assert gate.sample().dtype == torch.float32
    assert gate(torch.ones(2, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_bad_settings_say_what_is_allowed():
    with pytest.raises(ValueError, match=r"temperature=0 .* must be positive"):
        HardConcreteGate(2, temperature=0)
    with pytest.raises(ValueError, match=r"stretch=\(0, 1\) .*low < 0, high > 1"):
        HardConcreteGate(2, stretch=(0, 1))
