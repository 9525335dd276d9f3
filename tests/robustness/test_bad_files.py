"""Files and folders that are broken, and places that cannot be written: one line, exit code 2, before the work."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import hf_nmt_interp as hni
from hf_nmt_interp.attribution.api import make_method
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.conllu import read_conllu
from hf_nmt_interp.text.pharaoh import read_gold
from tests.cli.conftest import gated_folder, model_folder, run  # noqa: F401  (fixtures)

NAN, INF = float("nan"), float("inf")


# -------------------------------------------------------------------------------------------------- model folders
def cut(name):
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: (folder / name).stat().st_size // 2]
    )


def configured(**fields):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def with_weights(value):
    def change(folder):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        with torch.no_grad():
            model.model.encoder.layers[0].fc1.weight[0, 0] = value
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
    (cut("config.json"), "config.json is no JSON ("),
    (cut("generation_config.json"), "generation_config.json is no JSON ("),
    (
        configured(model_type="martian"),
        "cannot be loaded: The checkpoint you are trying to load has model type `martian`",
    ),
    (configured(model_type="gpt2"), "cannot be loaded: it is no encoder-decoder"),
    (configured(model_type="calibrated_marian", fusion="magic"), "fusion='magic' is not one of"),
    (configured(d_model=32), "of [16] where its config.json needs [32], and 80 others like it"),
    (configured(encoder_layers=5), "has no weights for model.encoder.layers.2.fc1.bias and 47 others"),
    (cut("source.spm"), "has no tokenizer that loads; save it beside the weights"),
    (cut("vocab.json"), "vocab.json is no JSON ("),
    (with_weights(NAN), "has NaN or inf in model.encoder.layers.0.fc1.weight; take an earlier checkpoint"),
    (with_weights(INF), "has NaN or inf in model.encoder.layers.0.fc1.weight; take an earlier checkpoint"),
    (pickled, "cannot be loaded: "),
    (with_code, "cannot be loaded: it is made by code of its own, which is never run here"),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN, ids=range(len(BROKEN)))
def test_broken_model_folders(run, model_folder, tmp_path, monkeypatch, capsys, damage, message):  # noqa: F811
    folder = shutil.copytree(model_folder, tmp_path / "broken")
    monkeypatch.chdir(tmp_path)
    damage(folder)
    capsys.readouterr()
    code, out, err = run("translate", "--model", folder, "A dog.")
    assert (code, out) == (2, "")
    assert message in err
    assert err.strip().count("\n") == 0
    assert not (tmp_path / "owned").exists()  # neither pickles nor code of the folder may run


def test_weights_without_a_place_are_said(run, model_folder, tmp_path):  # noqa: F811
    folder = shutil.copytree(model_folder, tmp_path / "fewer")
    configured(encoder_layers=1)(folder)
    code, out, err = run("translate", "--model", folder, "A dog.")
    assert (code, out.count("\n")) == (0, 1)
    assert "has weights that its config.json has no place for, model.encoder.layers.1.fc1.bias and 15 others" in err


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_checkpoints(run, model_folder, tmp_path, capsys, dtype):  # noqa: F811
    model = AutoModelForSeq2SeqLM.from_pretrained(model_folder).to(dtype)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(tmp_path)
    capsys.readouterr()
    code, _, err = run("attribute", "--model", tmp_path, "A dog.")  # commands compute in float32
    assert (code, err) == (0, "")
    with pytest.raises(InputError, match=r"LRP needs float32 or float64, not torch.*16; convert it with model.float"):
        make_method(model, "lrp")


def test_no_network(run):  # noqa: F811
    code, _, err = run("align", "--model", "nobody/never-downloaded", __file__)
    assert code == 2
    assert "no connection to the Hub, and not downloaded before; give a local folder or demo:en-de" in err


# ----------------------------------------------------------------------------------------------------------- files
BAD_FILES = {
    "NUL": (b"A dog.\nA \0 cat\n", "line 2: NUL character; is this a text file?"),
    "invalid UTF-8": (b"A dog.\nA \xff cat\n", "line 2: byte 3 (0xff) is not UTF-8; convert the file first"),
    "surrogate": (b"A dog.\nA \xed\xa0\x80\n", "line 2: byte 3 (0xed) is not UTF-8; convert the file first"),
    "UTF-16": ("A dog.\n".encode("utf-16"), "line 1: byte 1 (0xff) is not UTF-8; convert the file first"),
    "empty": (b"", "no sentences: give them as arguments, in a file with --input, or - for stdin"),
    "long": (b"A dog.\n" + b"word " * 10_000, "40001 tokens are more than the model's 64 positions"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize("verb", ["translate", "contributions", "heads", "faithfulness", "detached"])
def test_bad_files(run, model_folder, tmp_path, verb, kind):  # noqa: F811
    content, message = BAD_FILES[kind]
    path = tmp_path / "source"
    path.write_bytes(content)
    code, out, err = run(verb, "--model", model_folder, "--input", path)
    assert (code, out) == (2, "")
    assert message in err
    assert err.strip().count("\n") == 0


def test_a_surrogate_among_the_arguments(run, model_folder):  # noqa: F811
    code, _, err = run("translate", "--model", model_folder, "A dog.", "A \udcff cat")
    assert code == 2
    assert "sentence 2: 'A \\udcff cat' has a lone surrogate at 2; read it as UTF-8" in err


def test_gold_links_out_of_range(run, tmp_path):  # noqa: F811
    for name, text in {
        "gold": "0-0 1-1\n0-0 2p9\n",
        "links": "0-0\n0-0\n",
        "s": "a b\na b c\n",
        "t": "x y\nx\n",
    }.items():
        (tmp_path / name).write_text(text)
    gold, links, s, t = (tmp_path / name for name in ("gold", "links", "s", "t"))
    code, _, err = run("aer", "--text", s, t, gold, links)
    assert code == 2
    assert "gold, line 2: link 2-9 is out of range; the pair has 3 and 1 words, counted from 0" in err
    assert run("aer", "--text", s, t, links, links).code == 0
    with pytest.raises(InputError, match="links: 2 lines, but there are 1 sentence pairs; one each is needed"):
        read_gold(links, pairs=[("a", "x")])
    models = ["--model", "demo:en-de", "--reverse-model", "demo:de-en"]
    code, _, err = run("alignment-table", tmp_path / "out", *models, "--gold", gold, s, t)
    assert code == 2
    assert "gold, line 2: link 2-9 is out of range" in err
    gold.write_text("")
    code, _, err = run("aer", gold, gold)
    assert code == 2
    assert "gold: no lines; give a line of links for each sentence pair" in err


def word(number, head):
    return f"{number}\tA\t_\tX\t_\t_\t{head}\tdep\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\tA\n", "line 1: 2 columns, not 10 separated by tabs"),
        (word(1, "z"), "line 1: HEAD 'z' is no number"),
        (word(1, 9), "line 1: HEAD 9 of word 1 is itself or not among 1 words"),
        (word(2, 0), "line 1: ID '2' where word 1 is due"),
        (word(1, 2) + word(2, 1), "line 1: the heads of word 1 lead round in a circle; the file must have trees"),
        (word(1, 0) + word(2, 3) + word(3, 2), "line 2: the heads of word 2 lead round in a circle"),
        (word(1, 0).replace("A", "\0"), "line 1: NUL character"),
    ],
)
def test_malformed_trees(tmp_path, text, message):
    path = tmp_path / "trees.conllu"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_conllu(path))


# ---------------------------------------------------------------------------------------------------------- output
@pytest.mark.parametrize(
    ("verb", "flag", "path", "message"),
    [
        ("translate", "--output", "none/x", "--output: {}: No such file or directory"),
        ("heads", "--output", ".", "--output: {}: Is a directory"),
        ("heads", "--figure", "none/x.png", "--figure: {}: No such file or directory"),
        ("calibration", "--figures", "file/x", "--figures: {}: Not a directory"),
        ("contributions", "--figure", "file/x.png", "--figure: {}: Not a directory"),
    ],
)
def test_unwritable_places_are_refused_before_the_work(run, tmp_path, verb, flag, path, message):  # noqa: F811
    (tmp_path / "file").touch()
    code, out, err = run(verb, "--model", tmp_path / "never-loaded", flag, tmp_path / path, "A dog.")
    assert (code, out) == (2, "")
    assert message.format(tmp_path / path) in err


def test_pruning_into_a_file(run, gated_folder, tmp_path):  # noqa: F811
    (tmp_path / "file").touch()
    code, _, err = run("prune", "--model", gated_folder, "--output", tmp_path / "file" / "x")
    assert (code, err.endswith("Not a directory\n")) == (2, True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("verb", ["translate", "attribute"])
def test_full_disk(run, model_folder, verb):  # noqa: F811
    code, _, err = run(verb, "--model", model_folder, "--output", "/dev/full", "A dog.")
    assert (code, err) == (2, f"hf-nmt-interp {verb}: error: cannot write: No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_behind_stdout(tmp_path):
    (tmp_path / "links").write_text("0-0\n")
    command = [sys.executable, "-m", "hf_nmt_interp", "aer", str(tmp_path / "links"), str(tmp_path / "links")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "hf-nmt-interp aer: error: cannot write: No space left on device\n"


def test_results_that_cannot_be_read(translator_of, tmp_path):
    path = tmp_path / "result"
    model, tokenizer = translator_of("marian")
    hni.attribute(model, tokenizer, "A dog.", "Ein Hund.").save(path)
    whole = path.read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="is not a saved AttributionResult"):
            hni.AttributionResult.load(path)
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"model.safetensors is not a saved AttributionResult"):
        hni.AttributionResult.load(tmp_path / "model.safetensors")
