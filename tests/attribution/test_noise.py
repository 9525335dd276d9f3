"""How strong SmoothGrad's noise is, how many copies are made, and the warning where it drowns the sentence."""

import logging

import pytest
import torch

from hf_nmt_interp.attribution import Saliency, SmoothedAttention
from hf_nmt_interp.attribution.registry import parse_method
from hf_nmt_interp.errors import InputError
from tests.attribution.comparing import LENGTHS, assert_close, assert_is, pair_of
from tests.reference.saliency import copies_needed, noise_deviation, saliency
from tests.tiny_models import random_batch, tiny_model


@pytest.mark.parametrize("family", ["marian", "bart", "t5"])
@pytest.mark.parametrize(
    ("settings", "twin"),
    [({}, {"sigma": None}), ({"noise": 0.5}, {"sigma": None, "noise": 0.5}), ({"sigma": 0.15}, {"sigma": 0.15})],
    ids=["default", "noise", "sigma"],
)
def test_deviation_of_the_noise(family, settings, twin):
    model = tiny_model(family, torch.float64)
    ids = random_batch(model, [(6, 2)])["input_ids"][0]
    method = Saliency(model, smoothgrad=400, **settings)
    noise = torch.stack([method.noise(ids, n) for n in range(400)])
    assert noise.std().item() == pytest.approx(noise_deviation(model, ids, **twin), rel=0.02)
    assert abs(noise.mean().item()) < 0.02 * noise.std().item()


def test_noise_of_one_token_is_relative_to_the_units_of_that_token():
    model = tiny_model("marian", torch.float64)
    ids = torch.tensor([7])
    noise = torch.stack([Saliency(model, smoothgrad=1).noise(ids, n) for n in range(2000)])
    assert noise.std().item() == pytest.approx(noise_deviation(model, ids, None), rel=0.02)


# ---------------------------------------------------------------------------------------------------- adaptive copies
@pytest.mark.parametrize("average", ["normalised", "raw"])
def test_adaptive_copies_agree_with_the_twin(average):
    model, most = tiny_model("marian", torch.float64), 23
    lengths = [(9, 9), (8, 6), (2, 1)]
    batch = random_batch(model, lengths)
    method = Saliency(model, smoothgrad=most, average=average, adaptive=True)
    scores = method(**batch)
    needed = []
    for row in range(len(lengths)):
        source, target = pair_of(batch, row, lengths)
        noise = torch.stack([method.noise(source, n) for n in range(most)])
        copies = [saliency(model, source, target, noise=one[None], average=average) for one in noise]
        needed.append(copies_needed([copy["source"] for copy in copies]))
        expected = {name: sum(copy[name] for copy in copies[: needed[-1]]) / needed[-1] for name in copies[0]}
        assert_is(scores, row, expected, 1e-8)
    assert min(needed) < max(needed)  # else nothing was seen


@pytest.mark.parametrize("method", [Saliency, SmoothedAttention])
def test_adaptive_copies_do_not_depend_on_the_batch(method):
    model = tiny_model("marian", torch.float64)
    batch = random_batch(model, LENGTHS)
    scores = method(model, smoothgrad=30, adaptive=True)(**batch)
    small = method(model, smoothgrad=30, adaptive=True, max_memory=2**18)(**batch)
    assert_close(small.source, scores.source, 1e-8)
    for row, (S, T) in enumerate(LENGTHS):
        source, target = pair_of(batch, row)
        alone = method(model, smoothgrad=30, adaptive=True)(source[None], target[None])
        assert_close(alone.source[0], scores.source[row, :T, :S], 1e-8)
        assert_close(alone.prefix[0], scores.prefix[row, :T, :T], 1e-8)


@pytest.mark.parametrize("method", [Saliency, SmoothedAttention])
def test_up_to_five_copies_adaptive_is_the_fixed_number(method):
    model = tiny_model("marian")
    batch = random_batch(model, LENGTHS)
    fixed, adaptive = (method(model, smoothgrad=5, adaptive=adaptive)(**batch) for adaptive in (False, True))
    assert torch.equal(adaptive.source, fixed.source)


# ------------------------------------------------------------------------------------------------- a warning, mistakes
def certain_model():
    """A translator whose predictions depend strongly on its source."""
    model = tiny_model("marian", torch.float64)
    with torch.no_grad():
        model.lm_head.weight *= 60
    return model


@pytest.mark.parametrize("method", [Saliency, SmoothedAttention])
def test_noise_that_hides_the_sentence_is_reported_once(method, caplog):
    model = certain_model()
    batch = random_batch(model, [(6, 5), (4, 4)])
    batch["labels"] = model(**batch).logits.argmax(-1)
    with caplog.at_level(logging.WARNING):
        method(model, smoothgrad=3, noise=1e-4)(**batch)
        assert not caplog.records
        explainer = method(model, smoothgrad=3, sigma=5.0)
        explainer(**batch)
        explainer(**batch)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(
        "sigma=5 hides a sentence from the model: the log-probability of its translation falls by"
    )
    assert message.endswith("per token, more than 3; its scores say little, use less noise")


@pytest.mark.parametrize("method", [Saliency, SmoothedAttention])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": 0.0}, "noise: 0.0 must be above 0 and finite; for no noise use smoothgrad=0"),
        ({"noise": float("nan")}, "noise: nan must be above 0"),
        ({"noise": -1.0}, "noise: -1.0 must be above 0"),
        ({"sigma": -0.1}, "sigma: -0.1 must be above 0"),
        ({"sigma": 0.15, "noise": 1.0}, "sigma: 0.15 and noise 1.0 both set the deviation; leave one out"),
    ],
)
def test_bad_settings_are_named(method, settings, message):
    with pytest.raises(InputError, match=message):
        method(tiny_model("marian"), smoothgrad=3, **settings)


def test_settings_are_read_from_text():
    text = "smoothgrad:sigma=0.15,adaptive=true"
    assert parse_method(text) == ("smoothgrad", {"sigma": 0.15, "adaptive": True})
    assert parse_method("smoothed_attention:noise=1") == ("smoothed_attention", {"noise": 1.0})
    with pytest.raises(InputError, match="adaptive=5 is not of type bool"):
        parse_method("smoothgrad:adaptive=5")
    with pytest.raises(InputError, match="noise=much is not of type float or null"):
        parse_method("smoothgrad:noise=much")
