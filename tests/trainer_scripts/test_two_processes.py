"""Two processes make the steps that one makes of two batches each: the same losses and weights, for each trainer."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import MarianMTModel

from tests.trainer_scripts.every_trainer import PLAIN, RUNS, STEPS, TRAINING, command_line, losses, options_of

# without chance, which is another in each process: no dropout, gates that are open for sure, candidates of a search
CERTAIN = {
    "translation": {"dropout": 0.0},
    "seq2seq": {"set": ["embedding_size=12", "hidden_size=12", "dropout=0.0"]},
    "l0": {"gate_init": 20.0, "penalty": 0.5},
    "mrt": {"search": "beam", "alpha": 1.0},
    "calibrated": {},
    "alignment": {},
}


def words(name, model, data, folder, **more):
    options = TRAINING | PLAIN | CERTAIN[name] | {"train": data["train"], "output_dir": folder / name}
    return command_line(name, options_of(name, model, **options, **more))


@pytest.fixture(scope="module")
def trained_by_two(start, tmp_path_factory):
    """Folder of the runs of all trainers, the model they start from, and the data."""
    model, data = start
    folder = tmp_path_factory.mktemp("two")
    shutil.copytree(model, folder / "start")
    MarianMTModel.from_pretrained(model, dropout=0.0).save_pretrained(folder / "start")
    commands = {name: words(name, folder / "start", data, folder) for name in RUNS}
    (folder / "commands.json").write_text(json.dumps(commands))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launcher, "-m", "tests.trainer_scripts.two_processes", str(folder / "commands.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, data


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_have_the_losses_of_one(trained_by_two, tmp_path, monkeypatch, name):
    folder, data = trained_by_two
    monkeypatch.setattr(sys, "argv", words(name, folder / "start", data, tmp_path, gradient_accumulation_steps=2))
    RUNS[name][0].main()
    two, one = folder / name, tmp_path / name
    assert (two / f"checkpoint-{STEPS}" / "rng_state_1.pth").is_file()  # there was a second process
    expected = losses(one)
    assert list(expected) == list(range(1, STEPS + 1))
    assert len(set(expected.values())) == STEPS
    assert losses(two) == pytest.approx(expected, rel=1e-5)
    weights, others = (load_file(run / f"checkpoint-{STEPS}" / "model.safetensors") for run in (two, one))
    torch.testing.assert_close(weights, others, rtol=1e-4, atol=1e-6)
