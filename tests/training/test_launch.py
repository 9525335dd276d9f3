"""Filling the launchers' gap on machines without a GPU; nothing happens anywhere else."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training import launch


class Replaced(Exception):
    """Instead of `execv`, which does not return."""


@pytest.fixture
def lone(monkeypatch):
    """The environment of the one process that `accelerate launch --num_processes 3` starts on a CPU."""

    def execv(path, command):
        raise Replaced(command)

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(launch, "_asked_for", lambda: (3, 1, 0))
    monkeypatch.setattr(sys, "argv", ["script.py", "--a", "b c"])
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    monkeypatch.delenv("RANK", raising=False)


def test_a_lone_process_is_replaced_by_as_many_as_were_asked_for(lone, capsys):
    with pytest.raises(Replaced) as replaced:
        launch.start_missing_processes()
    (command,) = replaced.value.args
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert command[-5:] == ["--nproc_per_node", "3", "script.py", "--a", "b c"]
    assert "starting 3" in capsys.readouterr().err


def test_a_module_on_several_machines_gets_its_share(lone, monkeypatch):
    monkeypatch.setattr(launch, "_asked_for", lambda: (6, 2, 1))
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    with pytest.raises(Replaced) as replaced:
        launch.start_missing_processes("package")
    (command,) = replaced.value.args
    assert command[3:7] == ["--nnodes=2", "--node_rank=1", "--master_addr=10.0.0.1", "--master_port=29500"]
    assert command[-6:] == ["--nproc_per_node", "3", "--module", "package", "--a", "b c"]


@pytest.mark.parametrize("why", ["gpu", "one", "launched", "plain"])
def test_nothing_happens_elsewhere(lone, monkeypatch, why):
    if why == "gpu":
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    elif why == "one":
        monkeypatch.setattr(launch, "_asked_for", lambda: (1, 1, 0))
    elif why == "launched":
        monkeypatch.setenv("RANK", "0")
    else:
        monkeypatch.delenv("MASTER_PORT")
    launch.start_missing_processes()


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["accelerate", "launch", "--num_processes", "2", "train.py", "--num_processes", "5"], 2),
        (["accelerate", "launch", "--cpu", "--num-processes=4", "train.py", "--lr", "1"], 4),
        (["accelerate-launch", "--num_processes", "3", "launch.py"], 3),
        (["-m", "accelerate.commands.launch", "--num_processes", "3", "train.py"], 3),
        (["accelerate", "launch", "train.py"], 1),
        (["-m", "torch.distributed.run", "train.py"], 1),
    ],
)
def test_number_of_processes_is_read_from_the_launcher(monkeypatch, words, number):
    class Parent:
        def cmdline(self):
            return ["python", *words]

    monkeypatch.setattr("psutil.Process.parent", lambda self: Parent())
    assert launch._asked_for() == (number, 1, 0)


def test_errors_of_the_user_are_one_line(monkeypatch, capsys):
    def main():
        raise InputError("--train", None, "no such file")

    monkeypatch.setattr(sys, "argv", ["scripts/train.py"])
    with pytest.raises(SystemExit) as ended:
        launch.run_script(main)
    assert (ended.value.code, capsys.readouterr().err) == (2, "train.py: --train: no such file\n")


def test_interrupts_are_one_line(monkeypatch, capsys):
    def main():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["scripts/train.py"])
    with pytest.raises(SystemExit) as ended:
        launch.run_script(main)
    expected = "train.py: interrupted; run the same command again to resume\n"
    assert (ended.value.code, capsys.readouterr().err) == (130, expected)


CONFIGS = Path(__file__).parents[2] / "trainer_scripts" / "configs"


@pytest.mark.parametrize(
    ("config", "words", "found"),
    [
        ("ddp", [], (2, 1, 0)),
        ("ddp", ["--num_processes", "4"], (4, 1, 0)),
        ("ddp_two_machines", [], (8, 2, 0)),
        ("ddp_two_machines", ["--machine_rank", "1"], (8, 2, 1)),
        ("fsdp", [], (4, 1, 0)),
    ],
)
def test_what_the_launcher_has_from_its_configuration(monkeypatch, config, words, found):
    class Parent:
        def cmdline(self):
            file = ["--config_file", str(CONFIGS / f"{config}.yaml")]
            return ["python", "accelerate", "launch", *file, *words, "train.py", "--machine_rank", "7"]

    monkeypatch.setattr("psutil.Process.parent", lambda self: Parent())
    assert launch._asked_for() == found


def test_importing_it_does_not_import_torch():
    code = "import sys, hf_nmt_interp.training.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_only_several_processes_without_a_gpu_need_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert not launch.without_gpu_but_distributed()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launch.without_gpu_but_distributed()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert not launch.without_gpu_but_distributed()


FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    RuntimeError("[enforce fail at inline_container.cc:858] . PytorchStreamWriter failed writing file data/1"),
]


@pytest.mark.parametrize("error", FULL, ids=["system", "safetensors", "torch"])
def test_a_full_disk_is_one_line(monkeypatch, capsys, error):
    def main():
        raise error

    monkeypatch.setattr(sys, "argv", ["scripts/train.py"])
    with pytest.raises(SystemExit) as ended:
        launch.run_script(main)
    err = capsys.readouterr().err
    assert (ended.value.code, err.count("\n")) == (2, 1)
    assert err.startswith("train.py: cannot write: ")
    assert "free space and run the same command again" in err


@pytest.mark.parametrize("error", [RuntimeError("a bug"), FileNotFoundError(errno.ENOENT, "a bug"), KeyError("a bug")])
def test_other_errors_keep_their_traceback(error):
    def main():
        raise error

    with pytest.raises(type(error), match="a bug"):
        launch.run_script(main)
