"""What the package never does: pickle, run code of others, let data out of its place, write tokens down."""

import ast
import json
from pathlib import Path
from pickle import UnpicklingError

import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.html import render, render_table
from hf_nmt_interp.training.job import without_tokens
from hf_nmt_interp.training.launch import read_arguments
from tests.trainer_scripts.every_trainer import RUNS
from tests.training.tiny_trainers import make_trainer

ROOT = Path(hni.__file__).parents[1]
FILES = sorted([*ROOT.glob("hf_nmt_interp/**/*.py"), *ROOT.glob("trainer_scripts/*.py")])
MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "cloudpickle"}
CALLS = {"eval", "exec", "system", "popen", "pickle", "unpickle"}


def calls(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            yield owner, name, {word.arg: ast.unparse(word.value) for word in node.keywords}


def imports(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_pickle_and_no_code_of_others(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for module, name in imports(tree):  # the name of an error may be known
        assert module.partition(".")[0] not in MODULES or name == "UnpicklingError", module
    for owner, name, words in calls(tree):
        assert name not in CALLS or owner not in ("", "os"), name
        if (owner, name) == ("torch", "load"):
            assert words.get("weights_only") == "True"
        assert (owner, name) != ("torch", "save")
        if (owner, name) == ("np", "load"):
            assert words.get("allow_pickle", "False") == "False"
        assert words.get("shell", "False") == "False"
        assert words.get("trust_remote_code", "False") == "False"
        if name == "from_pretrained" and owner.startswith("Auto"):
            assert words.get("trust_remote_code") == "False", f"{owner}: it would ask, and run code after a `y`"


ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


def test_text_from_data_is_escaped(translator_of):
    model, tokenizer = translator_of("bart")
    result = hni.attribute(model, tokenizer, ATTACK, ATTACK, method="attention")
    for page in (render([result], title=ATTACK), render({ATTACK: [result]}), render_table([{ATTACK: ATTACK}], ATTACK)):
        assert "<img" not in page
        assert "alert(1)</script>" not in page
        assert "default-src 'none'" in page  # nothing could be loaded from elsewhere
    assert "<img" not in result._repr_html_()


def test_tokens_are_not_written_down(tmp_path, monkeypatch):
    from hf_nmt_interp.training.job import Job
    from hf_nmt_interp.training.translation import TranslationConfig

    secret = "hf_" + "x" * 30
    words = ["train.py", "--hub_token", secret, f"--push_to_hub_token={secret}", "--hub-token", secret, "--seed", "1"]
    words += ["--hub_tok", secret, f"--hub_t={secret}", f"runs/{secret}"]
    shown = without_tokens(words)
    assert secret not in " ".join(shown)
    assert shown[-1] == "runs/***"
    assert without_tokens(["hf_nmt_interp_trains_a_long_while"]) == ["hf_nmt_interp_trains_a_long_while"]
    monkeypatch.setattr("sys.argv", words)
    config = TranslationConfig(output_dir=str(tmp_path), report_to="none", hub_token=secret)
    assert secret not in config.to_json_string()  # what checkpoints have
    found = Job.__new__(Job)
    found.trainer = type("Trainer", (), {"args": config})
    found.write({"bleu": 1.0})
    text = (tmp_path / "results.json").read_text()
    assert secret not in text
    assert json.loads(text)["bleu"] == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("script", [script for script, _ in RUNS.values()], ids=list(RUNS))
def test_names_of_arguments_have_no_short_forms(script):
    secret = "hf_" + "x" * 30
    for words in (["--hub_tok", secret], [f"--hub_tok={secret}"]):
        with pytest.raises(InputError, match="--hub_tok: is not a known argument") as refused:
            read_arguments(script.make_parser(), ["--output_dir", "runs", *words])
        assert secret not in str(refused.value)


class Code:
    """What a pickle can do."""

    def __reduce__(self):
        return Path.touch, (Path("owned"),)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_states_that_hold_code_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    make_trainer(tmp_path / "run", **options).train()
    torch.save({"state": Code()}, tmp_path / "run" / "checkpoint-1" / name)
    with pytest.raises(UnpicklingError, match="Weights only load failed"):
        make_trainer(tmp_path / "run", **options).train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    assert not (tmp_path / "owned").exists()
