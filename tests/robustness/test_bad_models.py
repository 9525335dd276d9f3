"""Model folders that are broken, and models that cannot be had: one line, exit code 2."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.errors import InputError

NAN, INF = float("nan"), float("inf")


def cut(name):
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: (folder / name).stat().st_size // 2]
    )


def configured(**fields):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def containing(name, text):
    return lambda folder: (folder / name).write_text(text)


def with_weights(value, name="model.encoder.layers.0.fc1.weight"):
    def change(folder):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        model.state_dict()[name][:1] = value
        model.save_pretrained(folder)

    return change


class Malicious:
    """What a pickle can do."""

    def __reduce__(self):
        return os.system, (f"touch {Path.cwd() / 'owned'}",)


def pickled(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Malicious()}, folder / "pytorch_model.bin")


def with_code(folder):
    code = "open('owned', 'w')\nfrom transformers import PreTrainedConfig as C, PreTrainedModel as M\n"
    (folder / "evil.py").write_text(code)
    places = {"AutoConfig": "evil.C", "AutoModelForSeq2SeqLM": "evil.M", "AutoTokenizer": "evil.T"}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": places}))


BROKEN = [
    (cut("model.safetensors"), "cannot be loaded: Error while deserializing header"),
    (
        lambda folder: (folder / "model.safetensors").unlink(),
        "cannot be loaded: Error no file named model.safetensors",
    ),
    (cut("config.json"), "config.json is not JSON ("),
    (cut("generation_config.json"), "generation_config.json is not JSON ("),
    (
        configured(model_type="martian"),
        "cannot be loaded: The checkpoint you are trying to load has model type `martian`",
    ),
    (configured(model_type="gpt2"), "cannot be loaded: only encoder-decoder models are supported, gpt2 is not one"),
    (configured(model_type="calibrated_marian", fusion="magic"), "fusion='magic' is not one of"),
    (configured(d_model=32), "of [16] but its config.json needs [32], and 80 others"),
    (configured(encoder_layers="six"), "cannot be loaded: Validation error for field 'encoder_layers'"),
    (configured(quantization_config={"quant_method": "gptq", "bits": 4}), "cannot be loaded: "),
    (configured(quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}), "cannot be loaded: "),
    (configured(encoder_attention_heads=0), "its files have invalid values (ZeroDivisionError: integer"),
    (configured(activation_function="magic"), "its files have invalid values (KeyError: 'magic')"),
    (configured(pad_token_id=10**6), "its files have invalid values (AssertionError: Padding_idx must"),
    (containing("config.json", "null"), "its files have invalid values (TypeError: "),
    (containing("generation_config.json", "[]"), "its files have invalid values (TypeError: "),
    (containing("vocab.json", "[]"), "has no tokenizer that can be loaded; save it in the same folder as the weights"),
    (
        containing("tokenizer_config.json", "[]"),
        "has no tokenizer that can be loaded; save it in the same folder as the weights",
    ),
    (configured(encoder_layers=5), "has no weights for model.encoder.layers.2.fc1.bias and 47 others"),
    (cut("source.spm"), "has no tokenizer that can be loaded; save it in the same folder as the weights"),
    (cut("vocab.json"), "vocab.json is not JSON ("),
    (with_weights(NAN), "has NaN or inf in model.encoder.layers.0.fc1.weight; use an earlier checkpoint"),
    (with_weights(INF), "has NaN or inf in model.encoder.layers.0.fc1.weight; use an earlier checkpoint"),
    (with_weights(NAN, "final_logits_bias"), "has NaN or inf in final_logits_bias; use an earlier checkpoint"),
    (with_weights(3e38, "model.decoder.layers.1.fc2.weight"), "model: its logits are not finite; check the weights"),
    (pickled, "cannot be loaded: "),
    (with_code, "cannot be loaded: it needs custom code, which is never executed here"),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN, ids=range(len(BROKEN)))
def test_broken_model_folders(run, model_folder, tmp_path, monkeypatch, capsys, damage, message):
    folder = shutil.copytree(model_folder, tmp_path / "broken")
    monkeypatch.chdir(tmp_path)
    damage(folder)
    capsys.readouterr()
    code, out, err = run("translate", "--model", folder, "A dog.")
    assert (code, out) == (2, "")
    assert message in err
    assert err.strip().count("\n") == 0
    assert not (tmp_path / "owned").exists()  # neither pickles nor code of the folder may run


def test_names_that_are_too_long_for_a_folder(run):
    code, _, err = run("translate", "--model", "x" * 300, "A dog.")
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot be loaded: Repo id must use alphanumeric chars" in err


def test_weights_without_a_place_are_said(run, model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "fewer")
    configured(encoder_layers=1)(folder)
    code, out, err = run("translate", "--model", folder, "A dog.")
    assert (code, out.count("\n")) == (0, 1)
    assert "has weights that its config.json does not use, model.encoder.layers.1.fc1.bias and 15 others" in err


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_checkpoints(run, model_folder, tmp_path, capsys, dtype):
    model = AutoModelForSeq2SeqLM.from_pretrained(model_folder).to(dtype)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(tmp_path)
    capsys.readouterr()
    kind = str(dtype).removeprefix("torch.")
    for method, asked in (("value_zeroing", []), ("lrp", ["--dtype", kind])):  # commands compute in float32 by default
        code, _, err = run("attribute", "--model", tmp_path, "--method", method, *asked, "A dog.")
        assert (code, err) == (0, "")
    code, _, err = run("attribute", "--model", tmp_path, "--method", "value_zeroing", "--dtype", kind, "A dog.")
    remedy = "convert it with model.float(), or load it without dtype (--dtype)"
    assert (code, f"needs float32 or float64, not torch.{kind}; {remedy}" in err) == (2, True)
    with pytest.raises(InputError, match=r"value zeroing needs float32 or float64, not torch.*16; convert it with"):
        make_method(model, "value_zeroing")


def test_no_network(run, model_folder, tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    code, _, err = run("align", "--model", "nobody/never-downloaded", __file__)
    assert code == 2
    assert "no connection to the Hub, and not in the cache; give a local folder or demo:en-de" in err
    command = "align", "--model", model_folder, "--shards", tmp_path / "run", "--dataset", "nobody/never-downloaded"
    code, _, err = run(*command)
    assert (code, err.strip().count("\n")) == (2, 0)
    assert "dataset: nobody/never-downloaded (config None, split train) cannot be loaded: " in err
    assert not (tmp_path / "run").exists()
