"""What a training's folder says of its weights is true: a run with other values does not resume them.

Also for training/checkpoints.py.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.checkpoints import list_checkpoints
from tests.trainer_scripts.every_trainer import RUNS, command_line, options_of

SMALL = {"tokens_per_batch": 100, "max_steps": 2, "save_steps": 1}


@pytest.fixture
def train(start, tmp_path, monkeypatch):
    """Train on; keywords change arguments."""
    folder, data = start

    def run(**options):
        given = {"output_dir": tmp_path / "out", "model": folder, "train": data["train"]} | SMALL | options
        monkeypatch.setattr(sys, "argv", command_line("translation", options_of("translation", None) | given))
        RUNS["translation"][0].main()

    return run


def test_a_run_with_other_values_is_not_resumed(train, start, tmp_path, capsys):
    train()
    before = (tmp_path / "out/results.json").read_bytes()
    model = shutil.copytree(start[0], tmp_path / "model")
    config = json.loads((model / "config.json").read_bytes())
    (model / "config.json").write_text(json.dumps(config | {"dropout": 0.3}))
    data = [tmp_path / side for side in ("a", "b")]
    for path, old in zip(data, start[1]["train"], strict=True):
        path.write_bytes(Path(old).read_bytes().swapcase())
    for options, message in (
        ({"learning_rate": 1e-3}, "--learning_rate 5e-05, now 0.001"),
        ({"seed": 7}, "--seed 42, now 7"),
        ({"tokens_per_batch": 200}, "--tokens_per_batch 100, now 200"),
        ({"gradient_accumulation_steps": 2}, "--gradient_accumulation_steps 1, now 2"),
        ({"model": model}, "--model [0-9a-f]{12}, now [0-9a-f]{12}"),
        ({"train": data}, "--train [0-9a-f]{12} [0-9a-f]{12}, now [0-9a-f]{12}"),
    ):
        with pytest.raises(InputError, match=f"has a run that was started with {message}.* --overwrite_output_dir"):
            train(**options)
    assert (tmp_path / "out/results.json").read_bytes() == before
    capsys.readouterr()
    train(max_steps=3)  # longer
    assert "Resuming from" in capsys.readouterr().out
    train(learning_rate=1e-3, overwrite_output_dir=True)
    assert "Starting a new run in" in capsys.readouterr().out
    assert [path.name for path in list_checkpoints(tmp_path / "out")] == ["checkpoint-1", "checkpoint-2"]
    assert json.loads((tmp_path / "out/run.json").read_bytes())["learning_rate"] == 1e-3


def test_a_run_without_a_record_is_not_resumed(train, tmp_path):
    train()
    (tmp_path / "out" / "run.json").write_text("[")
    with pytest.raises(InputError, match=r"--output_dir: .*run.json is damaged \(Expecting"):
        train()
    (tmp_path / "out/run.json").unlink()
    with pytest.raises(InputError, match=r"has checkpoints, but no run.json with the values they were trained with"):
        train()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "scheduler.pt"])
def test_changed_bytes_of_a_checkpoint_are_noticed(train, tmp_path, name):
    train()
    path = tmp_path / "out/checkpoint-2" / name
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20] = bytes(byte ^ 255 for byte in content[middle : middle + 20])
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=rf"checkpoint-2/{name}: was changed after it was written; delete this checkpoint"
    ):
        train(max_steps=3)
    shutil.rmtree(path.parent)
    train(max_steps=3)
