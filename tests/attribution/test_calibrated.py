"""Every method on calibrated translators: relevance and gradients against their twins, fused weights, masks.

Also for attribution/mask.py and models/calibrated/attention.py.
"""

import pytest
import torch

from hf_nmt_interp.attribution import LRP, METHODS, AttentionWeights, MaskPerturbation, Saliency
from hf_nmt_interp.errors import InputError
from tests.attribution.comparing import assert_is, assert_relevance
from tests.attribution.leaks import unchanged
from tests.calibrated_models import CLASSES, tiny_calibrated
from tests.reference.lrp import lrp
from tests.reference.saliency import saliency
from tests.tiny_models import random_batch, tiny_model

LENGTHS = [(4, 3), (2, 2)]
RULES = {"alpha 1": {}, "alpha 1/2": {"alpha": 0.5, "beta": 0.5}}
RULES |= {rule: {"rule": rule} for rule in ("attnlrp", "cp_lrp", "gamma")}
CASES = [("marian", fusion) for fusion in ("fixed", "fixed_unnormalised", "anneal", "gate")]
CASES += [(family, "gate") for family in CLASSES if family != "marian"]
every_case = pytest.mark.parametrize(("family", "fusion"), CASES)


def sentences(batch):
    for row, (S, T) in enumerate(LENGTHS):
        yield row, batch["input_ids"][row, :S], batch["labels"][row, :T]


@every_case
@pytest.mark.parametrize("rule", RULES)
def test_lrp_agrees_with_the_twin(family, fusion, rule):
    model = tiny_calibrated(family, fusion, torch.float64)
    batch = random_batch(model, LENGTHS)
    scores = LRP(model, **RULES[rule])(**batch)
    for row, source, target in sentences(batch):
        assert_relevance(scores, row, lrp(model, source, target, **RULES[rule]), 1e-6)


@every_case
def test_lrp_keeps_its_total_in_float32(family, fusion):
    model = tiny_calibrated(family, fusion)
    batch = random_batch(model, [(7, 6), (4, 3)])
    scores = LRP(model)(**batch)
    assert scores.conservation_gap.max() < 1e-4
    assert (scores.source >= 0).all()
    values = LRP(model, attention="values")(**batch)
    assert (values.source - scores.source).abs().max() > 1e-4  # self-attention still has queries and keys
    relevance = LRP(model).head_relevance([batch])
    torch.testing.assert_close(relevance["cross"].sum(-1), torch.ones(2, dtype=torch.float64))


@every_case
def test_saliency_agrees_with_the_twin(family, fusion):
    model = tiny_calibrated(family, fusion, torch.float64)
    batch = random_batch(model, LENGTHS)
    scores = Saliency(model, score="probability")(**batch)
    for row, source, target in sentences(batch):
        assert_is(scores, row, saliency(model, source, target, "probability"), 1e-8)


@every_case
def test_attention_is_the_fused_weights_and_mask_is_1_minus_m(family, fusion):
    model = tiny_calibrated(family, fusion)
    batch = random_batch(model, LENGTHS)
    outputs = model(**batch, output_attentions=True)
    for layer in (0, -1):
        for head in (None, 1):
            methods = (AttentionWeights, MaskPerturbation)
            found = {method: method(model, layer=layer, head=head)(**batch) for method in methods}
            expected = {AttentionWeights: outputs.cross_attentions[layer], MaskPerturbation: 1 - outputs.masks[layer]}
            for method, scores in found.items():
                weights = expected[method].mean(1) if head is None else expected[method][:, head]
                for row, (S, T) in enumerate(LENGTHS):
                    torch.testing.assert_close(scores.source[row, :T, :S], weights[row, :T, :S])
                    assert not scores.source[row, T:].any()
                    assert not scores.source[row, :, S:].any()
    assert not found[MaskPerturbation].prefix.any()
    assert not found[MaskPerturbation].start.any()


@pytest.mark.parametrize("method", [name for name in METHODS if name != "alignment_head"])
def test_every_method_leaves_the_model_as_it_was(method):
    model = tiny_calibrated().train()
    with unchanged(model):
        METHODS[method](model)(**random_batch(model, LENGTHS))


def test_masks_are_asked_of_calibrated_models_only():
    plain, model = tiny_model("marian"), tiny_calibrated()
    assert not MaskPerturbation.fits(plain)
    with pytest.raises(InputError, match="method: 'mask' needs a calibrated model, not MarianMTModel"):
        MaskPerturbation(plain)
    with pytest.raises(InputError, match="layer: 2 is out of range; the decoder has 2 layers"):
        MaskPerturbation(model, layer=2)
    with pytest.raises(InputError, match="head: 5 is not a head of layer -1; it has 0 to 1"):
        MaskPerturbation(model, head=5)
