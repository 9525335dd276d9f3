"""`--model`, `--device` and languages: what loads, and how what does not is refused."""

import json
import shutil

import pytest

from hf_nmt_interp.cli import loading
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.demo import box
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import make_m2m100_tokenizer


def test_loads_a_folder_quietly(model_folder, capfd) -> None:
    model, tokenizer = loading.load(str(model_folder), device="cpu")
    assert not model.training
    assert model.config.vocab_size == len(tokenizer)
    assert capfd.readouterr() == ("", "")


def test_loads_gated_models(tmp_path, tokenizer_of) -> None:
    from hf_nmt_interp.models.gated import GatedMarianConfig, GatedMarianMTModel

    tokenizer = tokenizer_of("marian")
    plain = tiny_model("marian", vocab_size=len(tokenizer))
    GatedMarianMTModel(GatedMarianConfig(**plain.config.to_dict())).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert isinstance(loading.load(str(tmp_path))[0], GatedMarianMTModel)


def test_box(run) -> None:
    code, out, err = run("translate", "--model", "demo:xx-yy", "A.")
    known = ", ".join(f"demo:{direction}" for direction in box())
    expected = (
        f"hf-nmt-interp translate: error: --model: 'demo:xx-yy' is not a bundled translator; choose from {known}\n"
    )
    assert (code, out, err) == (2, "", expected)


def test_missing_folder(run, tmp_path) -> None:
    code, _, err = run("translate", "--model", tmp_path / "none", "A.")
    assert code == 2
    assert err == f"hf-nmt-interp translate: error: --model: folder '{tmp_path / 'none'}' does not exist\n"


def test_folder_without_a_model(run, tmp_path) -> None:
    code, _, err = run("attribute", "--model", tmp_path, "A.")
    assert code == 2
    remedy = "has no config.json; give a folder written by save_pretrained"
    assert err == f"hf-nmt-interp attribute: error: --model: '{tmp_path}' {remedy}\n"


@pytest.fixture
def broken(model_folder, tmp_path):
    """A copy of the tiny model's folder, to be damaged."""
    return shutil.copytree(model_folder, tmp_path / "broken")


def test_damaged_weights(run, broken) -> None:
    (broken / "model.safetensors").write_bytes(b"nothing of use")
    code, _, err = run("translate", "--model", broken, "A.")
    assert code == 2
    assert err.startswith(f"hf-nmt-interp translate: error: --model: '{broken}' cannot be loaded: ")
    assert err.count("\n") == 1


def test_not_a_translator(run, broken) -> None:
    for kind, problem in {
        "bert": "only encoder-decoder models are supported, bert is not one",
        "whisper": "only models that read text are supported, whisper reads speech",
        "pix2struct": "pix2struct is not among the models of AutoModelForSeq2SeqLM, which read and write text",
    }.items():
        (broken / "config.json").write_text(json.dumps({"model_type": kind}))
        code, _, err = run("translate", "--model", broken, "A.")
        assert code == 2
        assert f"cannot be loaded: {problem}\n" in err
        assert err.count("\n") == 1


def test_missing_weights_are_not_made_up(run, broken) -> None:
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"decoder_layers": 3}))
    code, _, err = run("translate", "--model", broken, "A.")
    assert code == 2
    assert "has no weights for model.decoder.layers.2" in err


def test_no_tokenizer(run, broken) -> None:
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        (broken / name).unlink()
    code, _, err = run("translate", "--model", broken, "A.")
    assert code == 2
    remedy = "has no tokenizer that can be loaded; save it in the same folder as the weights"
    assert err == f"hf-nmt-interp translate: error: --model: '{broken}' {remedy}\n"


def test_no_network(run, monkeypatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    code, _, err = run("translate", "--model", "nobody/never-downloaded", "A.")
    assert code == 2
    reason = "no connection to the Hub, and not in the cache; give a local folder or demo:en-de"
    assert err == (f"hf-nmt-interp translate: error: --model: 'nobody/never-downloaded' cannot be loaded: {reason}\n")


def test_devices(run, model_folder) -> None:
    code, _, err = run("translate", "--model", model_folder, "--device", "toaster", "A.")
    assert code == 2
    assert err.startswith("hf-nmt-interp translate: error: --device: 'toaster' cannot be used (")


def test_languages_of_a_model_of_one_pair(run, model_folder) -> None:
    code, _, err = run("translate", "--model", model_folder, "--target-lang", "de", "A.")
    assert code == 2
    # Marian's tokenizer names languages otherwise and chooses none
    remedy = "write the code into the source, e.g. --source-prefix '>>de<< '"
    assert err.endswith(f"--target-lang: MarianTokenizer has no languages to choose; {remedy}\n")


def test_languages_of_a_model_of_many(tmp_path) -> None:
    tokenizer = make_m2m100_tokenizer(tmp_path)
    tiny_model("m2m100", vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    model, loaded = loading.load(str(tmp_path), source_lang="fr", target_lang="de")
    assert (loaded.src_lang, loaded.tgt_lang) == ("fr", "de")
    assert model.generation_config.forced_bos_token_id == loaded.get_lang_id("de")
    with pytest.raises(InputError, match="--target-lang: 'qq' is not a language of M2M100Tokenizer"):
        loading.load(str(tmp_path), target_lang="qq")


def test_too_long_a_sentence(run, model_folder) -> None:
    code, _, err = run("translate", "--model", model_folder, "A dog.", "a dog " * 60)
    assert code == 2
    assert "error: sentence 2: " in err
    assert "tokens, but the model has 64 positions; split the sentence" in err


def test_the_type_of_the_weights_is_chosen(run, model_folder) -> None:
    asked = ["attribute", "--model", model_folder, "--method", "lrp:rule=epsilon,epsilon=1,norm=scale", "A dog."]
    assert "lrp" in run(*asked, "--dtype", "float64").out
    refused = run(*asked).err
    assert "rule: 'epsilon' needs a float64 model, this one is torch.float32" in refused
    assert "--dtype float64" in refused
    assert "--dtype: 'int8' is not one of float32, float64" in run(*asked, "--dtype", "int8").err
