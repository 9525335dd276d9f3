"""Masks, perturbation, calibration and fusions against their literal twins."""

import copy

import pytest
import torch

from hf_nmt_interp.models.calibrated import FUSIONS, CalibratedMarianConfig, CalibratedMarianMTModel
from hf_nmt_interp.models.calibrated.fusion import calibrate, mask_of, perturb
from tests.calibrated_models import tiny_calibrated
from tests.reference import calibration as twin
from tests.reference.forward import Attention, describe, run
from tests.tiny_models import random_batch, tiny_model

LENGTHS = [(5, 4), (3, 6), (1, 1)]


def random_weights(*shape):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return scores.softmax(-1), torch.rand(*shape, generator=generator, dtype=torch.float64)


def test_perturbed_and_calibrated_weights_agree_with_the_twin():
    a, m = random_weights(2, 3, 4, 5)
    for b, h, t in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(4)).tolist():
        torch.testing.assert_close(perturb(a, m)[b, h, t], twin.perturbed(a[b, h, t], m[b, h, t]))
        torch.testing.assert_close(calibrate(a, m)[b, h, t], twin.calibrated(a[b, h, t], m[b, h, t]))


def test_padding_is_not_counted_and_gets_nothing():
    a, scores = random_weights(1, 1, 2, 5)
    visible = torch.tensor([True, True, True, False, False])[None, None, None]
    a = (a * visible) / (a * visible).sum(-1, keepdim=True)
    m = mask_of(scores, visible)
    found = perturb(a, m, visible)
    assert not found[..., 3:].any()
    for t in range(2):
        torch.testing.assert_close(found[0, 0, t, :3], twin.perturbed(a[0, 0, t, :3], m[0, 0, t, :3]))
    config = CalibratedMarianConfig(fusion="fixed")
    fused = FUSIONS["fixed"](config, 1, 4)(a, calibrate(a, m), None, visible)
    assert not fused[..., 3:].any()
    torch.testing.assert_close(fused.sum(-1), torch.ones(1, 1, 2, dtype=torch.float64))


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("perturbed", [False, True])
def test_whole_passes_agree_with_the_twin(fusion, perturbed):
    model = tiny_calibrated("marian", fusion, torch.float64)
    batch = random_batch(model, LENGTHS)
    shifted = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "decoder_input_ids": shifted}
    with torch.no_grad():
        found = model(**inputs, perturbed=perturbed, output_calibration=True)
    logits, masks = (found.perturbed_logits, found.perturbed_masks) if perturbed else (found.logits, found.masks)
    network = describe(model)
    cross = [part for part, _ in network.decoder.sublayers if isinstance(part, Attention) and part.cross]
    for b, (S, T) in enumerate(LENGTHS):
        with torch.no_grad():
            source = network.encoder.embedding[batch["input_ids"][b, :S]]
            done = run(network, source, network.decoder.embedding[shifted[b, :T]], perturbed)
        torch.testing.assert_close(logits[b, :T], done.logits.x, atol=1e-10, rtol=0)
        for layer, part in enumerate(cross):
            torch.testing.assert_close(masks[layer][b, :, :T, :S], torch.stack(part.masks), atol=1e-10, rtol=0)


def test_annealing_follows_its_steps_and_is_saved(tmp_path):
    model = tiny_calibrated("marian", "anneal")
    fusion = model.fusions()[1]
    assert fusion.gamma().item() == pytest.approx(twin.gamma(400, 1000))
    before = copy.deepcopy(model)
    for _ in range(3):
        model.count_step()
    assert fusion.gamma().item() == pytest.approx(twin.gamma(403, 1000))
    model.save_pretrained(tmp_path)
    again = CalibratedMarianMTModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert [layer.step.item() for layer in again.fusions()] == [403, 403]
    assert before.fusions()[0].step.item() == 400
    batch = random_batch(model, LENGTHS)
    again = CalibratedMarianMTModel.from_pretrained(tmp_path)
    torch.testing.assert_close(again(**batch).logits, model(**batch).logits)
    assert not torch.equal(before(**batch).logits, model(**batch).logits)


def test_wrong_settings_are_named():
    fields = tiny_model("marian").config.to_dict()
    known = "fixed, fixed_unnormalised, anneal, gate"
    with pytest.raises(ValueError, match=f"fusion='sum' is not one of {known}"):
        CalibratedMarianMTModel(CalibratedMarianConfig(**fields, fusion="sum"))
    with pytest.raises(ValueError, match="anneal_steps=0 must be above 0"):
        CalibratedMarianMTModel(CalibratedMarianConfig(**fields, fusion="anneal", anneal_steps=0))
    with pytest.raises(ValueError, match=r"use CalibratedMarianConfig\(\*\*config.to_dict"):
        CalibratedMarianMTModel(tiny_model("marian").config)
