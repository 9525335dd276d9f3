"""Integrated gradients and occlusion against their literal twins.

Also for attribution/integrated_gradients.py and attribution/occlusion.py.
Also for attribution/baselines.py.
"""

import pytest
import torch

from hf_nmt_interp.attribution.integrated_gradients import IntegratedGradients
from hf_nmt_interp.attribution.occlusion import Occlusion
from hf_nmt_interp.attribution.saliency import Saliency
from hf_nmt_interp.decoding.batch import make_batch
from hf_nmt_interp.errors import InputError
from tests.attribution.comparing import LENGTHS, assert_is, pair_of
from tests.reference import perturbations as twins
from tests.tiny_models import FAMILIES, RECURRENT, random_batch, tiny_model

every_family = pytest.mark.parametrize("family", FAMILIES + RECURRENT)
RIEMANN = [(1 / 3, 1 / 3), (2 / 3, 1 / 3), (1.0, 1 / 3)]


@every_family
@pytest.mark.parametrize(
    ("settings", "points", "more"),
    [
        ({"points": "riemann_right"}, RIEMANN, {}),
        ({"baseline": "pad", "score": "logit"}, twins.gauss_legendre(3), {"baseline": None, "kind": "logit"}),
        ({"baseline": 7, "path": "source"}, twins.gauss_legendre(3), {"baseline": 7, "path": "source"}),
    ],
)
def test_integrated_gradients_are_the_twin(family, settings, points, more):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    if settings.get("baseline") == "pad":
        more = more | {"baseline": model.config.pad_token_id}
    scores = IntegratedGradients(model, steps=3, **settings)(**batch)
    for row in range(len(LENGTHS)):
        expected = twins.integrated_gradients(model, *pair_of(batch, row), points, **more)
        gap = expected.pop("gap").max()
        assert_is(scores, row, expected, 1e-8)
        torch.testing.assert_close(scores.conservation_gap[row], gap, atol=1e-8 * max(1, gap.item()), rtol=0)
    single = IntegratedGradients(model.float(), steps=3, **settings)(**batch)
    largest = max(1.0, scores.source.abs().max().item(), scores.prefix.abs().max().item())
    torch.testing.assert_close(single.source.double(), scores.source, atol=1e-4 * largest, rtol=0)


@pytest.mark.parametrize("family", ["marian", "m2m100", "lstm"])
def test_more_points_close_the_gap(family):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    gaps = [IntegratedGradients(model, steps=n)(**batch).conservation_gap.max() for n in (2, 8, 60)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02


@every_family
@pytest.mark.parametrize(
    "settings", [{}, {"baseline": 7, "score": "probability"}, {"how": "delete"}, {"score": "entropy"}]
)
def test_occlusion_is_the_twin(family, settings):
    model = tiny_model(family, torch.float64)
    lengths = LENGTHS[:2] + [(2, 2)]
    batch = random_batch(model, lengths)
    scores = Occlusion(model, **settings)(**batch)
    more = {"kind": settings.get("score", "log_probability"), **{k: v for k, v in settings.items() if k != "score"}}
    for row in range(len(lengths)):
        expected = twins.occlusion(model, *pair_of(batch, row, lengths), **more)
        assert_is(scores, row, expected, 1e-8)


@pytest.mark.parametrize("how", ["mask", "delete"])
def test_a_word_is_taken_away_with_all_its_subwords(how):
    model = tiny_model("marian", torch.float64)
    tensors = random_batch(model, [(5, 4), (3, 2)])
    batch = make_batch(model, **tensors)
    batch.source_words = torch.tensor([[0, 0, 1, 2, -1], [0, 1, -1, -1, -1]])
    batch.target_words = torch.tensor([[0, 1, 1, -1], [0, -1, -1, -1]])
    scores = Occlusion(model, how=how, unit="word").run(batch)
    units = ([[0, 1], [2], [3], [4]], [[0], [1], [2, 3]]), ([[0], [1], [2]], [[0], [1]])
    for row, (source, decoder) in enumerate(units):
        pair = pair_of(tensors, row, [(5, 4), (3, 2)])
        expected = twins.occlusion(model, *pair, how=how, source_units=source, decoder_units=decoder)
        assert_is(scores, row, expected, 1e-8)
    with pytest.raises(InputError, match="unit: 'word' needs a tokenizer's words, not only ids"):
        Occlusion(model, unit="word")(**tensors)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (IntegratedGradients, {"steps": 0}, "steps: 0 must be at least 1"),
        (IntegratedGradients, {"points": "left"}, "points: 'left' is not one of gauss_legendre, riemann_right"),
        (IntegratedGradients, {"path": "target"}, "path: 'target' is not one of all, source"),
        (IntegratedGradients, {"baseline": "mask"}, "baseline: 'mask' is not one of zero, pad; or the id of a token"),
        (Occlusion, {"baseline": 4000}, "baseline: 4000 is not among the model's 40 tokens"),
        (Occlusion, {"how": "hide"}, "how: 'hide' is not one of mask, delete"),
        (Occlusion, {"unit": "phrase"}, "unit: 'phrase' is not one of token, word"),
        (Occlusion, {"score": "loss"}, "score: 'loss' is not one of log_probability, probability, logit, entropy, kl"),
    ],
)
def test_bad_settings_are_named(method, settings, message):
    with pytest.raises(InputError, match=message):
        method(tiny_model("marian"), **settings)


def test_nothing_can_be_left_of_a_source():
    model = tiny_model("marian")
    with pytest.raises(InputError, match="how: 'delete' leaves nothing of a source with one token; use how='mask'"):
        Occlusion(model, how="delete")(**random_batch(model, [(1, 3)]))


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_products_in_bfloat16_are_close(family, plain):
    model = tiny_model(family, seed=1)
    if not plain:
        model.register_forward_hook(lambda *_: None)  # by autograd
    batch = random_batch(model, LENGTHS)
    for method, settings in ((Saliency, {}), (IntegratedGradients, {"steps": 3})):
        exact, narrow = (method(model, precision=p, **settings)(**batch) for p in ("float32", "bfloat16"))
        largest = exact.source.abs().max()
        error = (narrow.source - exact.source).abs().max() / largest
        assert 0 < error < 0.1
        assert narrow.source.dtype == torch.float32
