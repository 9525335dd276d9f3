"""ALTI+, rollout, norms of attention and value zeroing against their literal twins.

Also for attribution/alti.py and attribution/rollout.py.
Also for attribution/norm_attention.py, attribution/value_zeroing.py and attribution/memory.py.
"""

import pytest
import torch

from hf_nmt_interp.attribution.alti import ALTI
from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.attribution.norm_attention import NormAttention
from hf_nmt_interp.attribution.rollout import Rollout
from hf_nmt_interp.attribution.value_zeroing import ValueZeroing
from hf_nmt_interp.decoding.batch import make_batch
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import any_parts
from hf_nmt_interp.models.gated import GatedMarianMTModel, GatedT5ForConditionalGeneration
from tests.attribution.comparing import LENGTHS, assert_is, pair_of
from tests.calibrated_models import calibrated_copy
from tests.reference import layers
from tests.tiny_models import FAMILIES, random_batch, tiny_model

every_family = pytest.mark.parametrize("family", FAMILIES)
TWINS = {ALTI: layers.alti, Rollout: layers.attention_rollout, ValueZeroing: layers.value_zeroing}


@every_family
@pytest.mark.parametrize("method", TWINS)
def test_agrees_with_the_twin(family, method):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    expected = [TWINS[method](model, *pair_of(batch, row)) for row in range(len(LENGTHS))]
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        scores = method(model.to(dtype))(**batch)
        for row in range(len(LENGTHS)):
            assert_is(scores, row, expected[row], tolerance)
        total = scores.source.sum(-1) + scores.prefix.sum(-1) + scores.start
        torch.testing.assert_close(total, (batch["labels"] != -100).to(total), atol=1e-5, rtol=0)


@every_family
@pytest.mark.parametrize("layer", [0, -1])
@pytest.mark.parametrize("head", [None, 1])
def test_norms_agree_with_the_twin(family, layer, head):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    scores = NormAttention(model, layer=layer, head=head)(**batch)
    for row in range(len(LENGTHS)):
        expected = layers.norm_attention(model, *pair_of(batch, row), layer, head)
        assert_is(scores, row, expected, 1e-9)


@pytest.mark.parametrize("method", [ALTI, ValueZeroing, NormAttention])
@pytest.mark.parametrize(
    ("family", "gated"), [("marian", GatedMarianMTModel), ("t5", GatedT5ForConditionalGeneration)]
)
def test_closed_heads_and_pruned_ones_are_the_same(method, family, gated):
    plain = tiny_model(family, torch.float64)
    model = gated(gated.config_class(**plain.config.to_dict())).double().eval()
    model.load_state_dict(plain.state_dict(), strict=False)
    model.set_kept_heads({"encoder": [[0, 1], []], "decoder": [[0], [0, 1]], "cross": [[], [1]]})
    batch = random_batch(plain, LENGTHS)
    closed, pruned, whole = (method(m)(**batch) for m in (model, model.prune(), plain))
    torch.testing.assert_close(closed.source, pruned.source)
    torch.testing.assert_close(closed.prefix, pruned.prefix)
    assert not torch.allclose(whole.source, pruned.source)


def test_calibrated_models_are_explained():
    model = calibrated_copy(tiny_model("marian", torch.float64))
    batch = random_batch(model, LENGTHS)
    for method in TWINS:
        scores = method(model)(**batch)
        for row in range(len(LENGTHS)):
            assert_is(scores, row, TWINS[method](model, *pair_of(batch, row)), 1e-9)


@pytest.mark.parametrize("method", [ALTI, ValueZeroing, NormAttention])
def test_little_memory_gives_the_same(method):
    model = tiny_model("bart", torch.float64)
    batch = random_batch(model, LENGTHS)
    torch.testing.assert_close(method(model, max_memory=1)(**batch).source, method(model)(**batch).source)
    with pytest.raises(InputError, match="max_memory: 0 bytes must be more than 0"):
        method(model, max_memory=0)


def test_a_batch_is_explained_in_parts_that_fit():
    model = tiny_model("bart", torch.float64)
    batch = make_batch(model, **random_batch(model, LENGTHS))
    sizes = {}
    for limit in (1, 2**30):
        sizes[limit] = [len(part.labels) for part in Memory(model, any_parts(model), limit).parts(batch)]
    assert sizes == {1: [1] * len(LENGTHS), 2**30: [len(LENGTHS)]}


def test_a_layer_that_does_nothing_keeps_each_token_to_itself():
    model = tiny_model("mbart", torch.float64)
    with torch.no_grad():
        for stack in (model.model.encoder, model.model.decoder):
            for layer in stack.layers:
                layer.self_attn.out_proj.weight.zero_()
                layer.self_attn.out_proj.bias.zero_()
    scores = ALTI(model)(**random_batch(model, [(4, 3)]))
    assert not scores.prefix[0].tril(-2).any()  # a step reads one input, and no other position of the decoder
    matrix = ValueZeroing(model)
    assert matrix(**random_batch(model, [(4, 3)])).source.isfinite().all()


@pytest.mark.parametrize("method", [ALTI, ValueZeroing, NormAttention, Rollout])
def test_translators_without_attention_layers_are_refused(method):
    message = "has no attention in its encoder" if method is Rollout else "has no rules for LuongSeq2Seq"
    with pytest.raises(InputError, match=message):
        method(tiny_model("lstm"))
