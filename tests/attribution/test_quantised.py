"""Models with quantised linear layers: torch's own int8, and bitsandbytes where it is installed."""

import copy
import warnings

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, BitsAndBytesConfig

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.attribution.quantised import is_quantised, weight_and_bias
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.loading import weights_fingerprint
from tests.fitting import fitting
from tests.tiny_models import random_batch, tiny_model

RULES, GRADIENTS = {"lrp", "alti"}, {"saliency", "smoothgrad", "integrated_gradients"}
WORKING = [method for method in METHODS if method not in RULES | GRADIENTS]
SHARES = [method for method in WORKING if method not in ("occlusion", "mask")]  # rows add up to 1
PAIR = "A man in a blue shirt is standing on a ladder.", "Ein Mann in einem blauen Hemd steht auf einer Leiter."


def int8(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is moving this to another package
        return torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {torch.nn.Linear}, dtype=torch.qint8)


@pytest.fixture(scope="module")
def bundled():
    model, tokenizer = hni.load_demo("en-de")
    return model, int8(model), tokenizer


@pytest.mark.parametrize("method", WORKING)
def test_scores_of_int8_layers_are_near_those_of_float32(method):
    model = fitting(method, tiny_model("marian"))
    quantised = int8(model)
    assert sum(map(is_quantised, quantised.modules())) >= 33
    batch = random_batch(model, [(5, 4), (3, 6)])
    expected, found = (make_method(m, method)(**batch) for m in (model, quantised))
    difference = (found.source - expected.source).abs().max()
    assert 0 < difference <= (0.3 if method == "occlusion" else 0.1)  # of log-probabilities, of shares


@pytest.mark.parametrize("method", [method for method in SHARES if method != "smoothed_attention"])
def test_a_translator_in_int8(bundled, method):
    model, quantised, tokenizer = bundled
    expected, found = (hni.attribute(m, tokenizer, *PAIR, method=method).source for m in (model, quantised))
    assert abs(found - expected).sum(-1).mean() <= 0.05  # of 1 per step
    assert (found.argmax(-1) == expected.argmax(-1)).mean() >= 0.9


def test_a_translator_in_int8_translates_and_aligns(bundled):
    _, quantised, tokenizer = bundled
    found = hni.attribute(quantised, tokenizer, "A man sleeps.", method="attention")
    assert found.target_tokens == ["▁Ein", "▁Mann", "▁schläft", ".", "</s>"]
    assert hni.align(quantised, tokenizer, ["A man sleeps."], ["Ein Mann schläft."]) == [{(0, 0), (1, 1), (2, 2)}]


@pytest.mark.parametrize("method", sorted(RULES))
def test_rules_need_weights(bundled, method):
    message = r"does not explain quantised layers \(model.encoder.layers.0.self_attn.q_proj\); load it without quantis"
    with pytest.raises(InputError, match=message):
        make_method(bundled[1], method)


@pytest.mark.parametrize("method", sorted(GRADIENTS))
@pytest.mark.parametrize("part", ["all", "encoder"])
def test_int8_layers_have_no_gradients(method, part):
    model = tiny_model("marian")
    if part == "encoder":
        model.model.encoder = int8(model.model.encoder)
    else:
        model = int8(model)
    with pytest.raises(InputError, match=r"model.encoder.layers.0.self_attn.[kq]_proj is quantised and has no gradie"):
        make_method(model, method)(**random_batch(model, [(3, 2)]))


def test_fingerprints_see_packed_weights():
    model = tiny_model("marian")
    changed = copy.deepcopy(model)
    changed.model.encoder.layers[0].fc1.weight.data.neg_()
    first, same, other = (weights_fingerprint(int8(one)) for one in (model, model, changed))
    assert first == same != other


def test_weights_are_dequantised():
    linear = torch.nn.Linear(6, 3)
    weight, bias = weight_and_bias(int8(torch.nn.Sequential(linear))[0])
    assert weight.dtype == torch.float32
    assert 0 < (weight - linear.weight).abs().max() <= linear.weight.abs().max() / 127
    torch.testing.assert_close(bias, linear.bias)


@pytest.mark.parametrize("bits", [4, 8])
def test_bitsandbytes(tmp_path, bits):
    pytest.importorskip("bitsandbytes")
    model = tiny_model("marian", d_model=64, encoder_ffn_dim=64, decoder_ffn_dim=64)
    model.save_pretrained(tmp_path)
    config = BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8)
    quantised = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, quantization_config=config, device_map="cpu").eval()
    assert sum(map(is_quantised, quantised.modules())) >= 30
    batch = random_batch(model, [(5, 4), (3, 6)])
    most = {8: 0.02, 4: 0.25}[bits]
    linear = quantised.model.decoder.layers[1].encoder_attn.out_proj
    for method in ("attention", "norm_attention", "value_zeroing"):
        expected, found = (make_method(m, method)(**batch).source for m in (model, quantised))
        assert 0 < (found - expected).abs().max() <= most
        weight, bias = weight_and_bias(linear)  # 4 bits are packed in another way after the first pass
        assert (weight - model.model.decoder.layers[1].encoder_attn.out_proj.weight).abs().max() <= most / 2
        torch.testing.assert_close(bias, linear.bias)
    if bits == 8:
        expected, found = (make_method(m, "saliency")(**batch).source for m in (model, quantised))
        assert 0 < (found - expected).abs().max() <= most
    else:
        with pytest.raises(InputError, match=r"k_proj is quantised and has no gradients; use attention"):
            make_method(quantised, "saliency")(**batch)
    with pytest.raises(InputError, match=r"LRP does not explain quantised layers"):
        make_method(quantised, "lrp")
