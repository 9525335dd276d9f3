"""The verb train (cli/verbs/train.py), from the repository and from a wheel that is built here.

Also for training/scripts.py.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hf_nmt_interp.training.scripts import find_scripts
from tests.made_up_corpus import made_up_pairs, write_parallel
from tests.pages import ROOT
from tests.trainer_scripts.every_trainer import command_line, options_of

BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def test_every_script_has_a_name():
    scripts = {path.stem for path in ROOT.glob("trainer_scripts/*.py")}
    assert {name.replace("-", "_") for name in find_scripts()} == {name.removeprefix("train_") for name in scripts}
    assert {path.stem for path in find_scripts().values()} == scripts


def test_the_help_names_the_scripts(run):
    assert " train Run a script of trainer_scripts: train a translator, prune its heads" in " ".join(
        run("--help").out.split()
    )
    shown = " ".join(run("train", "--help").out.split())
    assert (
        "l0: Prune attention heads of a translator with L0 gates (voita2019, section 6), and test the pruned model"
        in shown
    )
    assert "invalid choice: 'l1' (choose from" in run("train", "l1").err


def test_arguments_are_the_script_s(run):
    path, arguments = list(sys.path), list(sys.argv)
    assert "--gate_init" in run("train", "l0", "--help").out
    problem = "--gate_int: is not a known argument; see --help; abbreviations are not supported"
    assert run("train", "l0", "--output_dir", "x", "--gate_int", 1) == (2, "", f"train_l0.py: {problem}\n")
    assert (sys.path, sys.argv) == (path, arguments)


def test_scripts_find_each_other(run, tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"in.{language}").write_text("A cat.\n", encoding="utf-8")
    files = tmp_path / "in.en", tmp_path / "in.de"
    given = ["--output_dir", tmp_path, "--train", *files, "--test", *files, "--held", *files, "--no_such", 1]
    code, _, err = run("train", "study-contributions", "objectives", *given)
    assert (code, err) == (
        2,
        "study_contributions.py: --no_such: is not a known argument; see --help; abbreviations are not supported\n",
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with the contents of the wheel, but for the weights of the box."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.safetensors")
    for name in ("hf_nmt_interp", "trainer_scripts"):
        shutil.copytree(ROOT / name, folder / "tree" / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "tree")
    command = [sys.executable, "-c", BUILD, str(folder)]
    subprocess.run(command, cwd=folder / "tree", check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "lib")
    return folder / "lib"


def test_the_wheel_has_the_package_and_the_scripts(installed):
    for folder, target in (("hf_nmt_interp", "."), ("trainer_scripts", "hf_nmt_interp")):
        files = [
            path.relative_to(ROOT)
            for path in (ROOT / folder).rglob("*")
            if path.suffix not in (".pyc", ".safetensors")
        ]
        assert not [path for path in files if not (installed / target / path).exists()]


def test_an_installed_trainer_trains(installed, tmp_path):
    pairs = made_up_pairs(60)
    data = {
        "train": write_parallel(tmp_path, "train", pairs[:50]),
        "test": write_parallel(tmp_path, "test", pairs[50:]),
    }
    options = options_of("translation", None, output_dir=tmp_path / "run", max_steps=1, **data)
    words = ["train", "translation", *command_line("translation", options)[1:]]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "hf_nmt_interp", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert results["command"].startswith("hf-nmt-interp train translation --disable_tqdm True")
