"""Translators with an alignment head of every family against the plain ones, and through what transformers does.

Also for models/combined.py.
"""

import logging

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from hf_nmt_interp.models.aligned import AlignmentHead
from hf_nmt_interp.training.alignment import load_aligned
from hf_nmt_interp.training.calibration import load_calibrated
from hf_nmt_interp.training.l0 import load_gated
from tests.aligned_models import CLASSES, tiny_aligned
from tests.tiny_models import random_batch, tiny_model

every_family = pytest.mark.parametrize("family", CLASSES)
DECODING = [
    {"num_beams": 1},
    {"num_beams": 3, "num_return_sequences": 2},
    {"num_beams": 2, "use_cache": False},
    {"do_sample": True, "num_return_sequences": 3},
]


def batch_of(model):
    return random_batch(model, [(7, 6), (4, 3)])


@every_family
@pytest.mark.parametrize("layer", [0, -1])
def test_logits_are_those_of_the_plain_model_bit_for_bit(family, layer):
    plain, model = tiny_model(family), tiny_aligned(family, alignment_layer=layer)
    batch = batch_of(plain)
    with torch.no_grad():
        expected, found = plain(**batch), model(**batch, output_alignment=True)
        assert torch.equal(model(**batch).logits, expected.logits)
    assert torch.equal(found.logits, expected.logits)
    assert set(found) - set(expected) == {"alignment"}
    assert found.alignment.shape == (2, 6, 7)
    torch.testing.assert_close(found.alignment.sum(-1), torch.ones(2, 6))
    assert not found.alignment[1, :, 4:].any()
    assert found.alignment.std() > 0.02
    assert found.decoder_hidden_states is None
    with torch.no_grad():
        shown = model(**batch, output_alignment=True, output_hidden_states=True)
        assert torch.equal(model(**batch, output_alignment=True, return_dict=False)[-1], found.alignment)
    assert len(shown.decoder_hidden_states) == 3


@pytest.mark.parametrize("family", ["marian", "bart", "mbart", "m2m100"])
def test_a_new_head_starts_as_the_cross_attention_above(family, tmp_path):
    plain = tiny_model(family)
    with torch.no_grad():  # otherwise self-attention is between the states that the head reads and the cross-attention
        for parameter in plain.get_decoder().layers[1].self_attn.out_proj.parameters():
            parameter.zero_()
    plain.save_pretrained(tmp_path)
    model = load_aligned(str(tmp_path), alignment_layer=0).eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model(**batch_of(plain), output_alignment=True, output_attentions=True)
    torch.testing.assert_close(found.alignment, found.cross_attentions[1].mean(1), atol=1e-6, rtol=0)


def test_a_new_head_of_t5_starts_with_the_projections_above(tmp_path):
    plain = tiny_model("t5", d_kv=8)  # 2 heads of 8: the width of the model
    plain.save_pretrained(tmp_path)
    head, above = load_aligned(str(tmp_path), alignment_layer=0).alignment_head, plain.get_decoder().block[1].layer[1]
    torch.testing.assert_close(head.q_proj.weight, above.EncDecAttention.q.weight * 8**0.5)  # the head divides by it
    assert torch.equal(head.k_proj.weight, above.EncDecAttention.k.weight)
    assert torch.equal(head.norm.weight, above.layer_norm.weight)
    assert not any(part.any() for part in (head.q_proj.bias, head.k_proj.bias, head.norm.bias))


@pytest.mark.parametrize("settings", [{"alignment_layer": -1}, {"alignment_layer": 0, "alignment_heads": 1}])
def test_a_new_head_unlike_the_cross_attention_above_is_random(settings, tmp_path):
    plain = tiny_model("marian")
    plain.save_pretrained(tmp_path)
    weight = load_aligned(str(tmp_path), **settings).alignment_head.q_proj.weight
    assert not torch.equal(weight, plain.get_decoder().layers[1].encoder_attn.q_proj.weight)
    assert 0.5 < weight.std() * plain.config.d_model**0.5 < 2


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_a_new_head_below_a_cross_attention_without_heads_is_random(family, tmp_path):
    tiny_model(family).save_pretrained(tmp_path / "plain")
    gated = load_gated(str(tmp_path / "plain"), gated_attentions=["cross"])
    gated.set_kept_heads({"cross": [[0], []]})
    gated.prune().save_pretrained(tmp_path / "pruned")
    for heads in (1, 2):
        head = load_aligned(str(tmp_path / "pruned"), alignment_layer=0, alignment_heads=heads).alignment_head
        assert 0.5 < head.q_proj.weight.std() * head.q_proj.in_features**0.5 < 2


def test_the_default_number_of_heads_divides_the_width(tmp_path):
    tiny_model("t5", num_heads=6, d_kv=2).save_pretrained(tmp_path)
    assert load_aligned(str(tmp_path)).alignment_head.heads == 2  # of width 16


def test_another_layer_can_be_read():
    model = tiny_aligned(dtype=torch.bfloat16, alignment_layer=1)
    model.read_layer(-2)
    assert model.config.alignment_layer == 0
    assert model(**batch_of(model), output_alignment=True).alignment.isfinite().all()
    with pytest.raises(ValueError, match="alignment_layer=2 is out of range: the decoder has 2 layers"):
        model.read_layer(2)


@every_family
def test_a_row_depends_on_the_token_that_is_read_and_not_on_later_ones(family):
    model = tiny_aligned(family)
    batch = batch_of(model)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    read = batch["labels"].clamp(min=4)
    before = model(**inputs, decoder_input_ids=read, output_alignment=True).alignment
    read[:, 2] = torch.where(read[:, 2] == 9, 10, 9)
    after = model(**inputs, decoder_input_ids=read, output_alignment=True).alignment
    torch.testing.assert_close(before[:, :2], after[:, :2])
    assert (before[:, 2] - after[:, 2]).abs().max() > 1e-4
    torch.testing.assert_close(model(**inputs, decoder_input_ids=read, only_alignment=True), after)


@every_family
@pytest.mark.parametrize("settings", DECODING, ids=str)
def test_generate_gives_what_a_pass_over_its_output_gives(family, settings):
    plain, model = tiny_model(family), tiny_aligned(family)
    batch = batch_of(plain)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    torch.manual_seed(0)
    expected = plain.generate(**inputs, max_new_tokens=8, **settings)
    torch.manual_seed(0)
    found = model.generate(**inputs, max_new_tokens=8, output_alignment=True, **settings)
    assert torch.equal(found.sequences, expected)
    each = len(expected) // 2
    rows = {name: value.repeat_interleave(each, 0) for name, value in inputs.items()}
    with torch.no_grad():
        whole = model(**rows, decoder_input_ids=expected, output_alignment=True).alignment
    live = found.alignment.sum(-1) > 0
    assert live[:, 0].all()
    assert not live[:, -1].any()  # the decoder has not read it
    ends = [model.config.eos_token_id, model.config.pad_token_id]
    words = ~torch.isin(expected, torch.tensor(ends))
    assert (live | ~words)[:, :-1].all()
    torch.testing.assert_close(found.alignment[live], whole[live], atol=2e-6, rtol=0)


def test_generate_without_a_mask_hides_nothing():
    model = tiny_aligned()
    ids = batch_of(model)["input_ids"][:1]
    with_mask, without = (
        model.generate(ids, max_new_tokens=4, output_alignment=True, **given).alignment
        for given in ({"attention_mask": torch.ones_like(ids)}, {})
    )
    assert torch.equal(with_mask, without)


@every_family
def test_a_plain_checkpoint_opens_without_a_warning_and_is_saved_with_its_head(family, tmp_path, caplog):
    plain = tiny_model(family)
    plain.save_pretrained(tmp_path / "plain")
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        model = CLASSES[family].from_pretrained(tmp_path / "plain").eval()
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records
    assert model.config.alignment_layer == 1
    assert model.alignment_head.q_proj.weight.std().item() == pytest.approx(16**-0.5, rel=0.2)
    model.save_pretrained(tmp_path / "aligned")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "aligned").eval()
    assert type(again) is CLASSES[family]
    batch = batch_of(model)
    assert torch.equal(*(m(**batch, output_alignment=True).alignment for m in (model, again)))
    alone = model.without_head()
    assert type(alone) is type(plain)
    assert torch.equal(alone(**batch).logits, plain(**batch).logits)


def test_what_is_really_missing_is_reported(tmp_path):
    tiny_aligned().save_pretrained(tmp_path)
    file, lost = tmp_path / "model.safetensors", "alignment_head.k_proj.weight"
    save_file({key: value for key, value in load_file(file).items() if key != lost}, file, {"format": "pt"})
    _, info = CLASSES["marian"].from_pretrained(tmp_path, output_loading_info=True)
    assert info["missing_keys"] == {lost}


@pytest.mark.parametrize("kind", ["gated", "pruned", "calibrated"])
def test_other_kinds_have_heads_too(kind, tmp_path):
    tiny_model("marian").save_pretrained(tmp_path / "plain")
    if kind == "calibrated":
        base = load_calibrated(str(tmp_path / "plain"))
    else:
        base = load_gated(str(tmp_path / "plain"))
        base.set_kept_heads({"encoder": [[1], []]})
        base = base.prune() if kind == "pruned" else base
    base.save_pretrained(tmp_path / "base")
    model = load_aligned(str(tmp_path / "base")).eval()
    model.save_pretrained(tmp_path / "aligned")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "aligned").eval()
    batch = batch_of(model)
    assert torch.equal(again(**batch).logits, base.eval()(**batch).logits)
    found = again(**batch, output_alignment=True)
    assert torch.equal(found.alignment, model(**batch, output_alignment=True).alignment)
    load = load_calibrated if kind == "calibrated" else load_gated
    other = load(str(tmp_path / "aligned")).eval()  # its weights change in training, so its head would not fit
    assert not hasattr(other, "alignment_head")
    if kind == "gated":
        pruned = again.prune()(**batch, output_alignment=True).alignment
        torch.testing.assert_close(pruned, found.alignment)


def test_wrong_settings_are_named(tmp_path):
    with pytest.raises(ValueError, match="alignment_heads=3 does not divide the width of the model, 16"):
        AlignmentHead(16, 3)
    with pytest.raises(ValueError, match="alignment_layer=2 is out of range: the decoder has 2 layers"):
        tiny_aligned(alignment_layer=2)
    with pytest.raises(ValueError, match=r"config is a MarianConfig; use AlignedMarianConfig"):
        CLASSES["marian"](tiny_model("marian").config)
    with pytest.raises(ValueError, match="only_alignment=True needs input_ids and decoder_input_ids"):
        tiny_aligned()(only_alignment=True)
