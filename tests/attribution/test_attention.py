"""Attention weights against those the models return themselves."""

import copy

import pytest
import torch

from hf_nmt_interp.attribution import AttentionWeights, ShiftedAttention
from hf_nmt_interp.attribution.attention import soft_links
from hf_nmt_interp.decoding.batch import make_batch
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import GatedMarianMTModel, GatedT5ForConditionalGeneration
from tests.reference.shift import shifted_right
from tests.tiny_models import FAMILIES, random_batch, tiny_model

LENGTHS = [(5, 4), (3, 3), (2, 1)]
every_family = pytest.mark.parametrize("family", FAMILIES)


@torch.no_grad()
def returned_weights(family, batch, decoder_input_ids):
    """Cross- and decoder attention weights [L, B, H, T, keys] of an eager model."""
    model = tiny_model(family, torch.float64, attn_implementation="eager")
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    output = model(**inputs, decoder_input_ids=decoder_input_ids, output_attentions=True, use_cache=False)
    return torch.stack(output.cross_attentions), torch.stack(output.decoder_attentions)


def assert_is(scores, row, source, decoder=None):
    """Compare one sentence with weights [T, S] of the source and [T, T] of the decoder's inputs."""
    S, T = LENGTHS[row]
    torch.testing.assert_close(scores.source[row, :T, :S], source[:T, :S], atol=1e-12, rtol=0)
    assert not scores.source[row, T:].any()
    assert not scores.source[row, :, S:].any()
    if decoder is not None:
        torch.testing.assert_close(scores.start[row, :T], decoder[:T, 0], atol=1e-12, rtol=0)
        torch.testing.assert_close(scores.prefix[row, :T, : T - 1], decoder[:T, 1:T], atol=1e-12, rtol=0)
        assert not scores.prefix[row, T:].any()
        assert not scores.prefix[row, :, T - 1 :].any()


@every_family
def test_weights_are_the_models_own(family):
    model = tiny_model(family, torch.float64)  # runs sdpa, which returns no weights
    batch = random_batch(model, LENGTHS)
    cross, own = returned_weights(family, batch, shifted_right(model, batch["labels"]))
    for layer in (0, 1, -1, -2):
        for head in (None, 0, 1):
            scores = AttentionWeights(model, layer=layer, head=head)(**batch)
            for row in range(len(LENGTHS)):
                weights = [
                    kind[layer, row].mean(0) if head is None else kind[layer, row, head] for kind in (cross, own)
                ]
                assert_is(scores, row, *weights)
    assert scores.conservation_gap is None
    scores = AttentionWeights(model, layer="mean")(**batch)
    for row in range(len(LENGTHS)):
        assert_is(scores, row, cross[:, row].mean((0, 1)), own[:, row].mean((0, 1)))


@every_family
def test_shifted_weights_are_those_of_the_step_that_reads_the_label(family):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    plain = AttentionWeights(model, layer=0)(**batch)
    shifted = ShiftedAttention(model, layer=0)(**batch)
    same = AttentionWeights(model, layer=0, shifted=True)(**batch)
    one_head = ShiftedAttention(model, layer=1, head=1)(**batch)
    start = shifted_right(model, batch["labels"])[:, :1]
    for row, (S, T) in enumerate(LENGTHS):
        labels = batch["labels"][row : row + 1, :T]
        alone = {name: batch[name][row : row + 1, :S] for name in ("input_ids", "attention_mask")}
        cross, _ = returned_weights(family, alone, torch.cat([start[row : row + 1], labels], 1))
        assert_is(shifted, row, cross[0, 0].mean(0)[1:])  # the first row reads the start token
        assert_is(one_head, row, cross[1, 0, 1, 1:])
    torch.testing.assert_close(same.source, shifted.source)
    for name in ("prefix", "start", "log_probs"):
        torch.testing.assert_close(getattr(shifted, name), getattr(plain, name), atol=1e-12, rtol=0)


@every_family
def test_choices_of_one_model_share_a_forward_pass(family):
    model = tiny_model(family)
    batch = make_batch(model, **random_batch(model, [(4, 5), (3, 2)]))
    choices = AttentionWeights(model, 0), ShiftedAttention(model, 1, head=1), AttentionWeights(model, "mean")
    passes: list[int] = []
    handle = model.get_decoder().register_forward_hook(lambda *_: passes.append(1))
    found = soft_links(choices, batch)
    handle.remove()
    assert len(passes) == 1
    for choice, weights in zip(choices, found, strict=True):
        torch.testing.assert_close(weights, choice.run(batch).source, atol=1e-6, rtol=0)


@every_family
def test_log_probs_are_those_of_the_labels(family):
    model = tiny_model(family)
    batch = random_batch(model, LENGTHS)
    scores = AttentionWeights(model)(**batch)
    with torch.no_grad():
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        logits = model(**inputs, decoder_input_ids=shifted_right(model, batch["labels"])).logits
    expected = logits.log_softmax(-1).gather(-1, batch["labels"].clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(scores.log_probs, expected * (batch["labels"] != -100), atol=1e-5, rtol=0)


@every_family
def test_model_is_left_as_it_was(family):
    model = tiny_model(family).train()
    batch = random_batch(model, LENGTHS)
    attributes = {name: sorted(vars(module)) for name, module in model.named_modules()}
    before = copy.deepcopy(model.config.to_dict())
    one, two = (ShiftedAttention(model)(**batch).source for _ in range(2))
    assert torch.equal(one, two)  # no dropout
    assert all(module.training and not module._forward_hooks for module in model.modules())
    assert {name: sorted(vars(module)) for name, module in model.named_modules()} == attributes
    assert model.config.to_dict() == before
    assert not one.requires_grad


@pytest.mark.parametrize(
    ("family", "gated"), [("marian", GatedMarianMTModel), ("t5", GatedT5ForConditionalGeneration)]
)
def test_pruned_heads_keep_their_numbers(family, gated):
    plain = tiny_model(family)
    model = gated(gated.config_class(**plain.config.to_dict())).eval()
    model.load_state_dict(plain.state_dict(), strict=False)
    model.set_kept_heads({"encoder": [[0, 1], [0, 1]], "decoder": [[0], [0, 1]], "cross": [[1], []]})
    pruned, batch = model.prune(), random_batch(plain, LENGTHS)
    cut, whole = (AttentionWeights(m, layer=0, head=1)(**batch) for m in (pruned, model))
    torch.testing.assert_close(cut.source, whole.source)
    assert not cut.prefix.any()  # self-attention has lost this head
    mean = AttentionWeights(pruned, layer=0)(**batch)
    torch.testing.assert_close(mean.source, cut.source)
    torch.testing.assert_close(mean.prefix, AttentionWeights(model, layer=0, head=0)(**batch).prefix)
    with pytest.raises(InputError, match="head: 0 is not a cross-attention head of layer 0; it has 1"):
        AttentionWeights(pruned, layer=0, head=0)
    with pytest.raises(InputError, match="layer: -1 has no cross-attention heads left; choose another layer"):
        AttentionWeights(pruned)


def test_bad_settings_are_named():
    model = tiny_model("marian")
    with pytest.raises(InputError, match="layer: 'all' is not one of mean"):
        AttentionWeights(model, layer="all")
    with pytest.raises(InputError, match="head: 1 is a head of one layer; leave it out for layer='mean'"):
        AttentionWeights(model, layer="mean", head=1)
    for layer in (2, -3):
        with pytest.raises(InputError, match=f"layer: {layer} is out of range; the decoder has 2 layers, 0 to 1"):
            AttentionWeights(model, layer=layer)
    for head in (2, -1):
        with pytest.raises(InputError, match=f"head: {head} is not a cross-attention head of layer 0; it has 0, 1"):
            AttentionWeights(model, layer=0, head=head)
