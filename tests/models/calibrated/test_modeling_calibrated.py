"""Calibrated translators of every family against the plain ones, and through everything transformers does."""

import copy
import logging
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from hf_nmt_interp.models.calibrated import FUSIONS, attention
from hf_nmt_interp.models.calibrated.attention import NAME, visible_keys
from tests.calibrated_models import CLASSES, tiny_calibrated
from tests.tiny_models import random_batch, tiny_model

every_family = pytest.mark.parametrize("family", CLASSES)
every_fusion = pytest.mark.parametrize("fusion", FUSIONS)
CASES = [(family, "gate", "sdpa") for family in CLASSES] + [("marian", "gate", "eager")]
CASES += [("marian", fusion, "sdpa") for fusion in FUSIONS if fusion != "gate"]
both_attentions = pytest.mark.parametrize("implementation", ["sdpa", "eager"])


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    paths = {family: tmp_path_factory.mktemp(family) for family in CLASSES}
    for family, path in paths.items():
        tiny_model(family).save_pretrained(path)
    return paths


def batch_of(model):
    return random_batch(model, [(7, 6), (4, 3)])


def generated(model, rows=slice(None), **settings):
    batch = batch_of(model)
    ids, mask = batch["input_ids"][rows], batch["attention_mask"][rows]
    width = mask.sum(-1).max()
    inputs = {"input_ids": ids[:, :width], "attention_mask": mask[:, :width]}
    return model.generate(**inputs, max_new_tokens=8, min_new_tokens=8, do_sample=False, **settings)


@pytest.mark.parametrize(("family", "implementation"), [(f, i) for f, fusion, i in CASES if fusion == "gate"])
def test_masks_of_1_or_open_gates_give_the_plain_model(family, implementation, checkpoints, monkeypatch):
    settings = {"attn_implementation": implementation, "dtype": torch.float64}
    plain = type(tiny_model(family)).from_pretrained(checkpoints[family], **settings)
    model = CLASSES[family].from_pretrained(checkpoints[family], fusion="gate", **settings)
    batch = batch_of(plain)
    expected = plain(**batch).logits
    assert (model(**batch).logits - expected).abs().max() > 1e-3
    opened = copy.deepcopy(model)
    for fusion in opened.fusions():
        torch.nn.init.zeros_(fusion.weight)
        torch.nn.init.constant_(fusion.bias, 100.0)
    torch.testing.assert_close(opened(**batch).logits, expected, atol=1e-12, rtol=0)
    assert torch.equal(generated(opened, num_beams=3), generated(plain, num_beams=3))
    monkeypatch.setattr(attention, "mask_of", lambda scores, visible: torch.ones_like(scores))
    torch.testing.assert_close(model(**batch).logits, expected, atol=1e-12, rtol=0)


@every_family
def test_a_plain_checkpoint_opens_without_a_warning(family, checkpoints, caplog):
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        model = CLASSES[family].from_pretrained(checkpoints[family], fusion="anneal", anneal_steps=50)
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records
    assert (model.config.fusion, model.config.anneal_steps) == ("anneal", 50)
    assert model.config.model_type.startswith("calibrated_")
    assert [fusion.step.item() for fusion in model.fusions()] == [0, 0]
    for weight in model.mask_parameters().values():
        assert weight.std().item() == pytest.approx(model.config.init_std, rel=0.2)
    # gamma(0) = 1: nothing is calibrated yet
    batch = batch_of(model)
    expected = tiny_model(family, torch.float64)(**batch).logits
    torch.testing.assert_close(model.double()(**batch).logits, expected, atol=1e-12, rtol=0)


def test_what_is_really_missing_is_reported(tmp_path):
    tiny_calibrated().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    lost = {
        "model.decoder.layers.0.encoder_attn.q_proj.mask.weight",
        "model.decoder.layers.1.encoder_attn.fusion.bias",
    }
    save_file({key: value for key, value in load_file(file).items() if key not in lost}, file, {"format": "pt"})
    _, info = CLASSES["marian"].from_pretrained(tmp_path, output_loading_info=True)
    assert info["missing_keys"] == lost


def test_weights_from_scratch_are_the_family_own():
    plain = tiny_model("marian")
    torch.manual_seed(0)
    expected = type(plain)(plain.config).state_dict()
    torch.manual_seed(0)
    model = CLASSES["marian"](CLASSES["marian"].config_class(**plain.config.to_dict(), fusion="gate"))
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert {name for name in state if name not in expected} == {
        *model.mask_parameters(),
        *(name for name in state if ".fusion." in name),
    }
    assert len(model.mask_parameters()) == 4


@pytest.mark.parametrize(("family", "fusion", "implementation"), CASES)
def test_cache_beams_and_padding(family, fusion, implementation):
    model = tiny_calibrated(family, fusion, attn_implementation=implementation)
    assert model.config._attn_implementation == implementation
    found = generated(model, num_beams=3)
    assert torch.equal(found, generated(model, num_beams=3, use_cache=False))
    assert torch.equal(found[1:], generated(model, rows=slice(1, 2), num_beams=3))
    batch = batch_of(model)
    alone = {name: value[1:, :4] if name != "labels" else value[1:, :3] for name, value in batch.items()}
    torch.testing.assert_close(model(**batch).logits[1:, :3], model(**alone).logits, atol=1e-5, rtol=0)


@every_fusion
@both_attentions
def test_outputs_have_every_kind_of_weight_and_padding_has_none(fusion, implementation):
    model = tiny_calibrated("marian", fusion, attn_implementation=implementation)
    batch = batch_of(model)
    found = model(**batch, output_attentions=True)
    for layer in range(2):
        a, m = found.original_attentions[layer], found.masks[layer]
        fused = found.cross_attentions[layer]
        assert a.shape == m.shape == fused.shape == (2, 2, 6, 7)
        assert not a[1, ..., 4:].any()
        assert not fused[1, ..., 4:].any()
        assert (m[1, ..., 4:] == 1).all()
        torch.testing.assert_close(a.sum(-1), torch.ones(2, 2, 6))
        if fusion == "gate":
            g = found.gates[layer][..., None]
            torch.testing.assert_close(fused, g * a + (1 - g) * a * torch.exp(1 - m))
    assert (found.gates is None) is (fusion != "gate")
    assert torch.equal(found.logits, model(**batch, output_calibration=True).logits)
    plain = model(**batch)
    assert (plain.masks, plain.cross_attentions) == (None, None)
    assert isinstance(model(**batch, return_dict=False), tuple)
    two = model(batch["input_ids"], batch["attention_mask"], batch["labels"].clamp(min=0), perturbed=True)
    assert all((mask[1, ..., 4:] == 1).all() for mask in two.perturbed_masks)


def test_masks_of_every_implementation_say_the_same():
    shown = torch.tensor([[True, True, False]])
    assert visible_keys(None) is None
    assert torch.equal(visible_keys(shown.long()), shown[:, None, None])
    assert torch.equal(visible_keys(shown[:, None, None]), shown[:, None, None])
    eager = torch.zeros(1, 1, 1, 3).masked_fill(~shown, torch.finfo(torch.float32).min)
    assert torch.equal(visible_keys(eager), shown[:, None, None])
    with pytest.raises(ValueError, match="attention_mask of type list is not supported"):
        visible_keys([1, 1, 0])


def test_the_attention_function_is_for_calibrated_cross_attention_only():
    model = tiny_model("marian", attn_implementation=NAME)
    with pytest.raises(ValueError, match="is set only by calibrated models"):
        model(**batch_of(model))


@every_family
def test_auto_classes_load_what_was_saved(family, tmp_path):
    model = tiny_calibrated(family)
    model.save_pretrained(tmp_path)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(again) is CLASSES[family]
    batch = batch_of(model)
    torch.testing.assert_close(again(**batch).logits, model(**batch).logits)


@pytest.mark.slow
def test_remote_code_loads_without_the_package(tmp_path):
    tiny_calibrated().save_pretrained(tmp_path / "model")
    program = f"""
import sys
sys.modules["hf_nmt_interp"] = None
from transformers import AutoModelForSeq2SeqLM
model = AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path / "model")!r}, trust_remote_code=True)
print(type(model).__module__.startswith("transformers_modules"), model.config.fusion)
"""
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["True", "gate"], done.stderr


def test_bfloat16_and_train_mode_run():
    model = tiny_calibrated(dtype=torch.bfloat16, attention_dropout=0.1).train()
    found = model(**batch_of(model))
    found.loss.backward()
    assert torch.isfinite(found.loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_two_passes_refuse_gradient_checkpointing():
    model = tiny_calibrated()
    model.gradient_checkpointing_enable()
    batch = batch_of(model)
    with pytest.raises(ValueError, match="gradient_checkpointing is not supported: it runs passes again"):
        model(batch["input_ids"], decoder_input_ids=batch["labels"].clamp(min=0), perturbed=True)
