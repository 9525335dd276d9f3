"""Every trainer, killed at random moments and started again: the same final weights."""

import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer_scripts.every_trainer import RUNS, command_line, options_of
from tests.trainer_scripts.test_train_l0 import start  # noqa: F401  (a fixture)

SMALL = {"max_steps": 12, "save_steps": 2, "tokens_per_batch": 100, "learning_rate": 1e-2}
MORE = {
    "translation": {"source_word_dropout": 0.1, "average_last": 2},
    "seq2seq": {"source_word_dropout": 0.1},
}


def run_script(name, words, log):
    """In a process of its own, which has everything imported already."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.argv = words
    RUNS[name][0].main()


def final_weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.safetensors"))
    return {str(path): load_file(folder / path) for path in paths if not str(path).startswith("checkpoint")}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_trainers_end_with_the_same_weights(start, tmp_path, name):  # noqa: F811
    model, data = start
    options = options_of(name, model, train=data["train"], **SMALL, **MORE.get(name, {}))
    fork = multiprocessing.get_context("fork")

    def begin(out: str):
        words = command_line(name, options | {"output_dir": tmp_path / out})
        process = fork.Process(target=run_script, args=(name, words, tmp_path / "log"))
        process.start()
        return process

    started = time.monotonic()
    whole = begin("whole")
    whole.join()
    assert whole.exitcode == 0, (tmp_path / "log").read_text()
    seconds = time.monotonic() - started
    moments, kills = random.Random(name), 0
    for _ in range(6):
        process = begin("killed")
        process.join(moments.uniform(0.1, 0.9) * seconds)
        process.kill()
        process.join()
        kills += process.exitcode == -9
    last = begin("killed")
    last.join()
    assert last.exitcode == 0, (tmp_path / "log").read_text()
    assert kills >= 3
    expected, found = (final_weights(tmp_path / out) for out in ("whole", "killed"))
    assert found.keys() == expected.keys()
    for path, weights in expected.items():
        torch.testing.assert_close(found[path], weights, rtol=0, atol=0, msg=lambda text, path=path: f"{path}: {text}")
    assert not [path for path in (tmp_path / "killed").rglob("*") if path.name == "training_args.bin"]
