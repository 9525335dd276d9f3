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

from tests.trainer_scripts.test_train_l0 import QUIET, start  # noqa: F401  (a fixture)
from trainer_scripts import train_calibrated, train_l0, train_mrt, train_seq2seq, train_translation

SMALL = {"max_steps": 12, "save_steps": 2, "tokens_per_batch": 100, "learning_rate": 1e-2}
NEW = {"vocab_size": 68, "source_word_dropout": 0.1}
RUNS = {
    "translation": (
        train_translation,
        NEW | {"d_model": 8, "layers": 1, "heads": 2, "ffn_dim": 16, "average_last": 2},
    ),
    "seq2seq": (train_seq2seq, NEW | {"set": ["embedding_size=12", "hidden_size=12"]}),
    "l0": (train_l0, {"model": True, "gated_attentions": "encoder", "gate_learning_rate": 0.1}),
    "mrt": (train_mrt, {"model": True, "candidates": 3, "risk": "chrf"}),
    "calibrated": (train_calibrated, {"model": True, "fusion": "gate"}),
}


def run_script(script, options, log):
    """In a process of its own, which has everything imported already."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    words = [
        [f"--{name}", *map(str, value if isinstance(value, list) else [value])] for name, value in options.items()
    ]
    sys.argv = [script.__file__, *(word for group in words for word in group)]
    script.main()


def final_weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.safetensors"))
    return {str(path): load_file(folder / path) for path in paths if not str(path).startswith("checkpoint")}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_trainers_end_with_the_same_weights(start, tmp_path, name):  # noqa: F811
    script, more = RUNS[name]
    model, data = start
    more = {option: model if option == "model" else value for option, value in more.items()}
    options = QUIET | {"train": data["train"]} | SMALL | more
    fork = multiprocessing.get_context("fork")

    def begin(out: str):
        arguments = script, options | {"output_dir": tmp_path / out}, tmp_path / "log"
        process = fork.Process(target=run_script, args=arguments)
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
