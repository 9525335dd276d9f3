"""Gated and pruned translators of every family against the plain ones, and through everything transformers does.

Also for models/gated/heads.py.
"""

import copy
import logging
import os
import subprocess
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from hf_nmt_interp.models import gated
from hf_nmt_interp.models.gated.gates import HardConcreteGate
from hf_nmt_interp.models.gated.heads import names_of
from tests.tiny_models import random_batch, tiny_model

CLASSES = {
    "marian": gated.GatedMarianMTModel,
    "bart": gated.GatedBartForConditionalGeneration,
    "mbart": gated.GatedMBartForConditionalGeneration,
    "m2m100": gated.GatedM2M100ForConditionalGeneration,
    "t5": gated.GatedT5ForConditionalGeneration,
    "t5_gated": gated.GatedT5ForConditionalGeneration,
}
SOME = {"encoder": [[1, 3], [0]], "decoder": [[0, 2, 3], [2]], "cross": [[0, 1, 2], [3]]}
HEADLESS = {"encoder": [[], [0, 1, 2, 3]], "decoder": [[], [2]], "cross": [[1, 2], []]}
NONE = {"encoder": [[], []], "decoder": [[], []], "cross": [[], []]}
every_family = pytest.mark.parametrize("family", CLASSES)
any_heads = pytest.mark.parametrize("kept", [SOME, HEADLESS, NONE], ids=["some", "headless", "none"])


def plain_model(family, **overrides):
    if family.startswith("t5"):
        overrides["num_heads"] = 4
    else:
        overrides |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        overrides |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
    return tiny_model(family, d_model=32, **overrides)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    paths = {family: tmp_path_factory.mktemp(family) for family in CLASSES}
    for family, path in paths.items():
        plain_model(family).save_pretrained(path)
    return paths


@pytest.fixture
def load(checkpoints):
    return lambda family, **settings: CLASSES[family].from_pretrained(checkpoints[family], **settings)


def batch_of(model):
    return random_batch(model, [(7, 6), (4, 3)])


@torch.no_grad()
def logits(model):
    return model(**batch_of(model)).logits


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0


def generated(model, **settings):
    batch = batch_of(model)
    inputs = {name: batch[name] for name in ["input_ids", "attention_mask"]}
    return model.generate(**inputs, max_new_tokens=8, min_new_tokens=8, do_sample=False, **settings)


def assert_close(actual, expected, atol):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


@every_family
def test_a_plain_checkpoint_opens_with_open_gates_the_same_logits_and_no_warning(family, checkpoints, caplog):
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        model = CLASSES[family].from_pretrained(checkpoints[family])
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records
    assert not model.training
    assert model.config.model_type.startswith("gated_")
    assert_close(logits(model), logits(plain_model(family)), atol=1e-6)
    assert model.kept_heads() == {kind: [[0, 1, 2, 3]] * 2 for kind in ["encoder", "decoder", "cross"]}
    assert torch.equal(generated(model), generated(plain_model(family)))


def test_what_is_really_missing_is_reported(tmp_path, load):
    load("marian").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    lost = {"model.encoder.layers.0.self_attn.out_proj.gate.log_alpha", "model.decoder.layers.1.fc1.weight"}
    save_file({key: value for key, value in load_file(file).items() if key not in lost}, file, {"format": "pt"})
    _, info = CLASSES["marian"].from_pretrained(tmp_path, output_loading_info=True)
    assert info["missing_keys"] == lost


def test_a_checkpoint_of_another_family_still_warns(checkpoints, caplog):
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        gated.GatedMarianConfig.from_pretrained(checkpoints["bart"])
    finally:
        logger.removeHandler(caplog.handler)
    assert "model of type `bart`" in caplog.text


@every_family
def test_weights_from_scratch_are_the_family_own(family):
    plain = plain_model(family)
    torch.manual_seed(0)
    expected = type(plain)(plain.config).state_dict()
    torch.manual_seed(0)
    model = CLASSES[family](CLASSES[family].config_class(**plain.config.to_dict() | {"kept_heads": {}}))
    state = model.state_dict()
    assert {name for name in state if "log_alpha" not in name} == expected.keys()
    for name, value in expected.items():
        if family.startswith("t5") and value.shape[0] == 40:  # embeddings: same distribution, drawn in another order
            assert state[name].std().item() == pytest.approx(1, abs=0.1)
        else:
            assert torch.equal(state[name], value), name


@every_family
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_closed_gate_is_a_head_without_output(family, attention, load):
    model, plain = load(family, attn_implementation=attention), plain_model(family, attn_implementation=attention)
    model.set_kept_heads(HEADLESS)
    assert model.kept_heads() == HEADLESS
    twin = copy.deepcopy(load(family, attn_implementation=attention))  # finds the attentions of the plain model
    twin.load_state_dict(plain.state_dict(), strict=False)
    for kind, layers in twin.attentions().items():
        for layer, heads in zip(layers, HEADLESS[kind], strict=True):
            weight = getattr(layer, names_of(layer).output).weight.data.unflatten(1, (4, -1))  # [d, heads, size]
            weight[:, [head for head in range(4) if head not in heads]] = 0
    assert (logits(model) - logits(plain)).abs().max() > 1e-3
    assert_close(logits(model), logits(twin), atol=1e-6)


@every_family
@any_heads
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_pruned_is_the_gated_model_and_smaller(family, kept, attention, load):
    model = load(family, attn_implementation=attention)
    model.set_kept_heads(kept)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pruned = model.prune()
    assert type(pruned) is type(model)
    assert pruned.kept_heads() == pruned.config.kept_heads == kept
    assert not any("log_alpha" in name for name in pruned.state_dict())
    assert_close(logits(pruned), logits(model), atol=1e-5)
    assert pruned.l0_penalty() == 0
    # per head: head_size rows of q, k, v (and their biases), head_size columns of o
    plain = plain_model(family)
    size, bias = (6, 0) if family.startswith("t5") else (8, 3 * 8)
    removed = sum(4 - len(heads) for layers in kept.values() for heads in layers)
    assert plain.num_parameters() - pruned.num_parameters() == removed * (4 * size * 32 + bias)
    # the model itself is as it was
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.config.kept_heads is None


@every_family
@any_heads
def test_generation_of_the_pruned_model_with_every_cache(family, kept, load):
    model = load(family)
    model.set_kept_heads(kept)
    pruned = model.prune()
    for settings in [{}, {"num_beams": 3}, {"use_cache": False}, {"cache_implementation": "static"}]:
        assert torch.equal(generated(pruned, **settings), generated(model, **settings)), settings
    scores = [
        torch.stack(generated(pruned, output_logits=True, return_dict_in_generate=True, use_cache=cache).logits)
        for cache in (True, False)
    ]
    assert_close(*scores, atol=1e-5)


@every_family
def test_cache_holds_the_kept_heads_only(family, load):
    model = load(family)
    model.set_kept_heads(HEADLESS)
    cache = generated(model.prune(), return_dict_in_generate=True).past_key_values
    heads = {
        "decoder": [layer.keys.shape[1] for layer in cache.self_attention_cache.layers],
        "cross": [layer.keys.shape[1] for layer in cache.cross_attention_cache.layers],
    }
    assert heads == {"decoder": [1, 1], "cross": [2, 1]}  # a layer without heads has one ghost head of size 8
    assert cache.get_seq_length() == 8


@every_family
def test_attention_weights_are_those_of_the_kept_heads(family, load):
    model = load(family, attn_implementation="eager")
    model.set_kept_heads(SOME)
    with torch.no_grad():
        full = model(**batch_of(model), output_attentions=True)
        pruned = model.prune()(**batch_of(model), output_attentions=True)
    for kind, name in [
        ("encoder", "encoder_attentions"),
        ("decoder", "decoder_attentions"),
        ("cross", "cross_attentions"),
    ]:
        assert len(pruned[name]) == 2
        for weights, expected, heads in zip(pruned[name], full[name], SOME[kind], strict=True):
            assert_close(weights, expected[:, heads], atol=1e-5)


@every_family
@any_heads
def test_pruned_reloads_by_auto_class_trains_on_and_is_gated_and_pruned_again(family, kept, load, tmp_path):
    model = load(family)
    model.set_kept_heads(kept)
    model.prune().save_pretrained(tmp_path)
    pruned, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(pruned) is type(model)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert pruned.config.gated_attentions == []
    assert_close(logits(pruned), logits(model), atol=1e-5)

    pruned.train()
    pruned(**batch_of(pruned)).loss.backward()
    unused = [name for name, parameter in pruned.named_parameters() if parameter.grad is None]
    assert all(
        "embed_positions" in name for name in unused
    )  # Marian's sinusoids; distributed training wants no others
    torch.optim.SGD(pruned.parameters(), lr=1e-3).step()

    pruned.eval().add_gates("all")
    assert pruned.config.gated_attentions == ["encoder", "decoder", "cross"]
    again = CLASSES[family].from_pretrained(tmp_path, gated_attentions="all")
    for regated in (pruned, again):
        fewer = {kind: [heads[1:] for heads in layers] for kind, layers in kept.items()}
        regated.set_kept_heads(fewer)
        smaller = regated.prune()
        assert smaller.kept_heads() == smaller.config.kept_heads == fewer
        assert_close(logits(smaller), logits(regated), atol=1e-5)


@every_family
def test_a_gated_model_saves_and_loads_its_gates(family, load, tmp_path):
    model = load(family, gated_attentions=["cross"], gate_init=1.5, gate_temperature=0.5)
    assert model.config.gated_attentions == ["cross"]
    gate = model.gates()["cross"][1]
    assert gate.log_alpha.tolist() == [1.5] * 4
    with torch.no_grad():
        gate.log_alpha.copy_(torch.tensor([-1.0, 2.0, -3.0, 0.5]))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert loaded.gates()["cross"][1].log_alpha.tolist() == [-1.0, 2.0, -3.0, 0.5]
    assert loaded.gates()["cross"][1].temperature == 0.5
    assert loaded.gates()["encoder"] == [None, None]
    assert loaded.kept_heads()["cross"] == [[0, 1, 2, 3], [1, 3]]
    assert_close(logits(loaded), logits(model), atol=1e-6)


@every_family
def test_training_draws_each_gate_once_per_pass_and_anew_each_pass(family, load, monkeypatch):
    model = load(family, gate_init=0.0).train()
    without_dropout(model)
    drawn, sample = [], HardConcreteGate.sample
    monkeypatch.setattr(HardConcreteGate, "sample", lambda gate: drawn.append(gate) or sample(gate))
    first, second = logits(model), logits(model)
    assert len(drawn) == 2 * 6
    assert len({id(gate) for gate in drawn}) == 6
    assert (first - second).abs().max() > 1e-4


@every_family
def test_gradient_checkpointing_gives_the_same_draws_and_gradients(family, load):
    gradients = []
    for checkpointing in (False, True):
        model = load(family, gate_init=0.5).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        torch.manual_seed(5)
        loss = model(**batch_of(model), use_cache=False).loss + 0.1 * model.l0_penalty()
        loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert_close(gradients[1][name], gradient, atol=1e-6)
    assert all(gradients[0][name].abs().sum() > 0 for name in gradients[0] if "log_alpha" in name)


@every_family
def test_bfloat16_keeps_gates_in_float32(family, load, tmp_path):
    model = load(family, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    for bf16 in (model, AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.bfloat16)):
        bf16.set_kept_heads(HEADLESS)
        types = {parameter.dtype for name, parameter in bf16.named_parameters() if "log_alpha" in name}
        assert types == {torch.float32}
        pruned = bf16.prune()
        assert pruned.dtype == torch.bfloat16
        assert_close(logits(pruned), logits(bf16), atol=0.05)
        assert generated(pruned).shape == (2, 9)
        bf16.train()(**batch_of(bf16)).loss.backward()


def test_penalty_is_the_sum_of_the_gates_expected_heads(load):
    model = load("marian", gated_attentions=["encoder", "cross"])
    with torch.no_grad():
        for layer, gate in enumerate(model.gates()["encoder"]):
            gate.log_alpha.copy_(torch.tensor([-2.0, 0.0, 1.0, 4.0]) + layer)
    expected = model.expected_heads()
    assert expected["decoder"] == [4.0, 4.0]
    assert model.l0_penalty().item() == pytest.approx(sum(expected["encoder"]) + sum(expected["cross"]), abs=1e-5)
    model.l0_penalty().backward()
    assert all((gate.log_alpha.grad > 0).all() for gate in model.gates()["encoder"])


def test_bad_settings_are_named(load):
    with pytest.raises(
        ValueError, match=r"gated_attentions=\['encoder', 'self'\]: \['self'\] not among 'all', encoder"
    ):
        load("marian", gated_attentions=["encoder", "self"])
    with pytest.raises(ValueError, match=r"config is a MarianConfig; use GatedMarianConfig\(\*\*config.to_dict\(\)\)"):
        gated.GatedMarianMTModel(plain_model("marian").config)
    model = load("marian", gated_attentions="cross")
    with pytest.raises(ValueError, match="'self', which is not one of encoder, decoder, cross"):
        model.set_kept_heads({"self": [[0], [0]]})
    with pytest.raises(ValueError, match=r"kept_heads\['cross'\] has 1 layers, but the model has 2"):
        model.set_kept_heads({"cross": [[0]]})
    with pytest.raises(ValueError, match=r"has \[2, 7\], which is not an ascending subset of \[0, 1, 2, 3\]"):
        model.set_kept_heads({"cross": [[0], [2, 7]]})
    with pytest.raises(ValueError, match=r"a layer without gates keeps \[0, 1, 2, 3\]; call add_gates"):
        model.set_kept_heads({"encoder": [[0], [0]]})


@every_family
def test_the_configuration_of_a_pruned_model_builds_the_same_architecture_from_scratch(family, load, tmp_path):
    model = load(family)
    model.set_kept_heads(HEADLESS)
    pruned = model.prune()
    pruned.save_pretrained(tmp_path)
    scratch = CLASSES[family](CLASSES[family].config_class.from_pretrained(tmp_path))
    assert {name: p.shape for name, p in scratch.named_parameters()} == {
        name: p.shape for name, p in pruned.named_parameters()
    }
    assert scratch.kept_heads() == HEADLESS
    assert logits(scratch.eval()).isfinite().all()
    assert (logits(scratch) - logits(pruned)).abs().max() > 1e-3


REMOTE = """
import sys
from transformers import AutoModelForSeq2SeqLM
for path in sys.argv[1:]:
    model = AutoModelForSeq2SeqLM.from_pretrained(path, trust_remote_code=True)
    print(type(model).__name__, model.kept_heads())
    model.prune().save_pretrained(path + "/again")
    AutoModelForSeq2SeqLM.from_pretrained(path + "/again", trust_remote_code=True)
assert not any(name.startswith("hf_nmt_interp") for name in sys.modules)
"""


def test_the_code_travels_with_the_weights(load, tmp_path):
    paths = []
    for family in ["marian", "t5"]:
        model = load(family)
        model.set_kept_heads(HEADLESS)
        model.prune().save_pretrained(paths.append(str(tmp_path / family)) or paths[-1])
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", REMOTE, *paths]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"GatedMarianMTModel {HEADLESS}",
        f"GatedT5ForConditionalGeneration {HEADLESS}",
    ]


def test_mt5_is_pruned_like_t5(tmp_path):
    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_heads": 4}
    plain = transformers.MT5ForConditionalGeneration(transformers.MT5Config(**sizes, decoder_start_token_id=0)).eval()
    plain.save_pretrained(tmp_path / "plain")
    model = gated.GatedMT5ForConditionalGeneration.from_pretrained(tmp_path / "plain").eval()
    generator = torch.Generator().manual_seed(0)
    batch = {name: torch.randint(3, 50, (2, 6), generator=generator) for name in ("input_ids", "labels")}
    torch.testing.assert_close(model(**batch).logits, plain(**batch).logits)
    model.set_kept_heads({"encoder": [[0, 2], []], "decoder": [[], [1, 3]], "cross": [[3], [0, 1]]})
    small = model.prune()
    small.save_pretrained(tmp_path / "small")
    loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small").eval()
    assert loaded.num_parameters() < plain.num_parameters()
    for other in (small, loaded):
        torch.testing.assert_close(other(**batch).logits, model(**batch).logits, atol=1e-5, rtol=1e-5)
