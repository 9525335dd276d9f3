"""Compiled, wrapped and odd models: a right result, or one clear line."""

import copy

import accelerate
import pytest
import torch
from torch.nn.utils import prune

import hf_nmt_interp as hni
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.errors import InputError
from tests.calibrated_models import tiny_calibrated
from tests.tiny_models import random_batch, tiny_model

METHODS = ["lrp", "saliency", "attention"]


@pytest.fixture(scope="module")
def plain():
    model = tiny_model("marian")
    batch = random_batch(model, [(5, 4), (3, 6)])
    return model, batch, {name: make_method(model, name)(**batch).source for name in METHODS}


def compiled(model):
    model.compile(backend="eager")


def compiled_forward(model):
    model.forward = torch.compile(model.forward, backend="eager")


def compiled_layer(model):
    model.model.encoder.layers[0].compile(backend="eager")


def masked(model):
    prune.identity(model.model.encoder.layers[0].fc1, "weight")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("change", [compiled, compiled_forward, compiled_layer, masked])
def test_compiled_and_masked_models_give_the_same(plain, change, method):
    model, batch, expected = plain
    changed = copy.deepcopy(model)
    change(changed)
    with torch.no_grad():
        changed(**batch)  # compiles it, without our hooks
    torch.testing.assert_close(make_method(changed, method)(**batch).source, expected[method], rtol=0, atol=1e-5)


def test_compiled_models_translate(translator_of):
    model, tokenizer = translator_of("bart")
    expected = hni.attribute(model, tokenizer, "A dog.", method="attention")
    wrapped = torch.compile(model, backend="eager")
    assert hni.attribute(wrapped, tokenizer, "A dog.", method="attention").target_tokens == expected.target_tokens
    with hni.explain_generation(wrapped, tokenizer, method="attention") as explained:
        wrapped.generate(**tokenizer(["A dog."], return_tensors="pt"))
    assert explained.results[0].target_tokens == expected.target_tokens
    with pytest.raises(InputError, match="the layers of OptimizedModule are not known"):
        make_method(wrapped, "lrp")


def test_compiled_calibrated_models_keep_their_attention():
    model = tiny_calibrated("m2m100")
    batch = random_batch(model, [(5, 4), (3, 6)])
    expected = make_method(model, "attention")(**batch).source
    wrapped = torch.compile(model, backend="eager")
    torch.testing.assert_close(make_method(wrapped, "attention")(**batch).source, expected, rtol=0, atol=1e-5)


def test_models_made_in_inference_mode(plain):
    _, batch, expected = plain
    with torch.inference_mode():
        model = tiny_model("marian")
    for method in ("lrp", "attention"):
        torch.testing.assert_close(make_method(model, method)(**batch).source, expected[method])
    with pytest.raises(InputError, match="it was created in inference mode and has no gradients; load the model"):
        make_method(model, "saliency")(**batch)


@pytest.mark.parametrize("method", METHODS)
def test_weights_of_several_dtypes(plain, method):
    model, batch, _ = plain
    mixed = copy.deepcopy(model)
    mixed.model.encoder.layers[0].fc1.to(torch.bfloat16)
    message = r"its weights have different dtypes, torch.bfloat16 and torch.float32; convert it, e.g. with|bfloat16"
    with pytest.raises(InputError, match=message):
        make_method(mixed, method)(**batch)


def test_a_model_on_another_device_than_the_processor_is_not_refused(plain, monkeypatch):
    monkeypatch.setattr(type(plain[0]), "device", property(lambda model: torch.device("cuda:0")))
    assert make_method(plain[0], "lrp").model.device.type == "cuda"


def test_a_device_map_of_one_device_changes_nothing(plain):
    model, batch, expected = plain
    hooked = accelerate.dispatch_model(copy.deepcopy(model), {"": "cpu"}, force_hooks=True)
    assert hasattr(hooked, "_hf_hook")
    for method in METHODS:
        torch.testing.assert_close(make_method(hooked, method)(**batch).source, expected[method], rtol=0, atol=1e-5)


@pytest.mark.parametrize("where", ["cpu", "disk", "partly disk"])
def test_offloaded_models_are_refused(translator_of, tmp_path, where):
    model, tokenizer = copy.deepcopy(translator_of("t5"))
    if where == "cpu":
        accelerate.cpu_offload(model, torch.device("cpu"))
    elif where == "disk":
        accelerate.disk_offload(model, tmp_path, torch.device("cpu"))
    else:
        places = {"shared": "cpu", "encoder": "cpu", "decoder": "disk", "lm_head": "cpu"}
        accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=tmp_path)
    for call in (hni.attribute, hni.align, hni.check):
        with pytest.raises(InputError, match=r"model: \S+ is on the meta device and has no values; load the"):
            call(model, tokenizer, ["A dog."])


def test_another_default_device_is_refused(plain):
    torch.set_default_device("meta")
    try:
        with pytest.raises(InputError, match=r"torch's default device is meta, but the model is on cpu; call"):
            make_method(plain[0], "lrp")
    finally:
        torch.set_default_device(None)
