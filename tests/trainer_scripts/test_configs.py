"""The configurations of accelerate, with fewer processes and no GPU: what they start trains as one process does.

Also for training/fsdp.py.
"""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer_scripts import sharded
from tests.trainer_scripts.every_trainer import PLAIN, STEPS, TRAINING, command_line, losses, options_of
from trainer_scripts import train_translation

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "trainer_scripts" / "configs"


@pytest.fixture
def words(start, tmp_path):
    """Function from a folder to the command line of a training in it."""
    model, data = start
    options = TRAINING | PLAIN | {"tokenizer": model, "dropout": 0.0, "train": data["train"]}
    return lambda folder, **more: command_line(
        "translation", options_of("translation", None, **options | {"output_dir": tmp_path / folder} | more)
    )


def begin(config, words, *more):
    """Start `accelerate launch`."""
    command = [str(Path(sys.executable).with_name("accelerate")), "launch", "--config_file", CONFIGS / config]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*map(str, [*command, *more, *words])], env=environment, text=True, **pipes)


def end(*processes):
    """Wait for them; what they printed."""
    printed = [process.communicate(timeout=900)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(printed)
    return printed


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


@pytest.mark.slow
def test_every_configuration_starts_what_it_says(words, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", words("one", gradient_accumulation_steps=2))
    train_translation.main()
    expected = losses(tmp_path / "one")

    (printed,) = end(begin("ddp.yaml", words("ddp")))
    assert "starting 2" in printed
    assert losses(tmp_path / "ddp") == pytest.approx(expected, rel=1e-5)

    # the machines are this one twice; --mixed_precision as the expected run has it
    place = ["--main_process_ip", "127.0.0.1", "--main_process_port", free_port(), "--num_processes", 2]
    place += ["--mixed_precision", "no"]
    machines = [begin("ddp_two_machines.yaml", words("two"), *place, "--machine_rank", rank) for rank in (0, 1)]
    end(*machines)
    assert losses(tmp_path / "two") == pytest.approx(expected, rel=1e-5)

    # without a GPU accelerate does not shard unless it is told to: its processes train as those of DDP do
    end(begin("fsdp.yaml", words("fsdp"), "--num_processes", 2, "--mixed_precision", "no"))
    assert losses(tmp_path / "fsdp") == pytest.approx(expected, rel=1e-5)
    for folder in ("ddp", "two", "fsdp"):
        assert list((tmp_path / folder).glob("checkpoint-*/rng_state_1.pth"))


def begin_sharded(words):
    words = [Path(sharded.__file__), *words[1:]]
    return begin("fsdp.yaml", words, "--num_processes", 2, "--mixed_precision", "no")


def test_sharded_weights_train_as_whole_ones(words, start, tmp_path, monkeypatch):
    """To the end: checkpoints, test, card and export."""
    test = {"test": start[1]["test"]}
    monkeypatch.setattr(sys, "argv", words("one", gradient_accumulation_steps=2, **test))
    train_translation.main()
    end(begin_sharded(words("sharded", export=tmp_path / "export", **test)))
    one, two = tmp_path / "one", tmp_path / "sharded"
    assert (two / f"checkpoint-{STEPS}" / "pytorch_model_fsdp.bin").is_file()  # they were
    assert losses(two) == pytest.approx(losses(one), rel=1e-5)
    weights, others = (load_file(folder / "model.safetensors") for folder in (two, one))
    torch.testing.assert_close(weights, others, rtol=1e-4, atol=1e-6)
    curves = [(folder / "README.md").read_text().split("## Where")[1].split("## Training")[0] for folder in (two, one)]
    assert curves[0] == curves[1]
    assert load_file(tmp_path / "export" / "model.safetensors").keys() == weights.keys()


@pytest.mark.slow
def test_a_sharded_training_that_was_cut_off_goes_on(words, tmp_path):
    adam = {"optim": "adamw_torch", "save_steps": 2}  # plain SGD has no state, which torch cannot read again
    end(begin_sharded(words("whole", **adam)))
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for path in (tmp_path / "cut" / "model.safetensors", tmp_path / "cut" / f"checkpoint-{STEPS}"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (printed,) = end(begin_sharded(words("cut", **adam)))
    assert f"Resuming from {tmp_path / 'cut' / 'checkpoint-2'}" in printed
    weights, others = (load_file(tmp_path / folder / "model.safetensors") for folder in ("cut", "whole"))
    torch.testing.assert_close(weights, others, rtol=0, atol=0)
