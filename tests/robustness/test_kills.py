"""Every trainer and every corpus run, killed at random moments and started again: the same weights, the same bytes."""

import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_nmt_interp.cli.main import main
from tests.cli.conftest import model_folder  # noqa: F401  (a fixture)
from tests.cli.test_corpus import bytes_of
from tests.trainer_scripts.every_trainer import RUNS, command_line, options_of
from tests.trainer_scripts.test_train_l0 import start  # noqa: F401  (a fixture)

SMALL = {"max_steps": 12, "save_steps": 2, "tokens_per_batch": 100, "learning_rate": 1e-2}
MORE = {
    "translation": {"source_word_dropout": 0.1, "average_last": 2},
    "seq2seq": {"source_word_dropout": 0.1},
}


def begin(log, run, *arguments):
    """Call a function in a process of its own, which has everything imported already; what it says goes to a file."""

    def call():
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.exit(run(*arguments))

    process = multiprocessing.get_context("fork").Process(target=call)
    process.start()
    return process


def train(name, words):
    sys.argv = words
    RUNS[name][0].main()


def whole_and_killed(log, seed, run, whole, killed, times):
    """Run to the end; then begin another run again and again, killed at random moments, until it ends by itself."""
    started = time.monotonic()
    process = begin(log, run, *whole)
    process.join()
    assert process.exitcode == 0, log.read_text()
    seconds = time.monotonic() - started
    moments, kills = random.Random(seed), 0
    for _ in range(times):
        process = begin(log, run, *killed)
        process.join(moments.uniform(0.05, 0.5) * seconds)
        process.kill()
        process.join()
        if process.exitcode != -9:
            assert process.exitcode == 0, log.read_text()
            break
        kills += 1
    process = begin(log, run, *killed)
    process.join()
    assert process.exitcode == 0, log.read_text()
    assert kills >= 2


def final_weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.safetensors"))
    return {str(path): load_file(folder / path) for path in paths if not str(path).startswith("checkpoint")}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_trainers_end_with_the_same_weights(start, tmp_path, name):  # noqa: F811
    model, data = start
    options = options_of(name, model, train=data["train"], **SMALL, **MORE.get(name, {}))
    whole, killed = (
        (name, command_line(name, options | {"output_dir": tmp_path / out})) for out in ("whole", "killed")
    )
    whole_and_killed(tmp_path / "log", name, train, whole, killed, times=6)
    expected, found = (final_weights(tmp_path / out) for out in ("whole", "killed"))
    assert found.keys() == expected.keys()
    for path, weights in expected.items():
        torch.testing.assert_close(found[path], weights, rtol=0, atol=0, msg=lambda text, path=path: f"{path}: {text}")
    assert not [path for path in (tmp_path / "killed").rglob("*") if path.name == "training_args.bin"]


SHARDS = ["--shard-size", "5", "--shards", "OUT/run"]
TEXT = ["--output", "OUT/links", "--translations", "OUT/text", "--resume"]
CORPUS = {
    "attribute": ["attribute", "--input", "SOURCE", "--target-file", "TARGET", "--method", "attention", *SHARDS],
    "parquet": ["attribute", "--input", "SOURCE", "--method", "attention", "--shard-format", "parquet", *SHARDS],
    "contributions": ["contributions", "--input", "SOURCE", "--target-file", "TARGET", *SHARDS],
    "heads": ["heads", "--input", "SOURCE", "--target-file", "TARGET", *SHARDS],
    "align": ["align", "SOURCE", "TARGET", "--method", "attention", *SHARDS],
    "text": ["align", "SOURCE", "--method", "attention", *TEXT],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPUS)
def test_killed_corpus_runs_end_with_the_same_bytes(model_folder, tmp_path, name):  # noqa: F811
    lines = [f"The old dog {n} sleeps under the table." if n % 9 else "bad \0" for n in range(1, 121)]
    for path in ("source", "target"):
        (tmp_path / path).write_text("".join(f"{line}\n" for line in lines))

    def words(out):
        (tmp_path / out).mkdir()
        places = {"SOURCE": tmp_path / "source", "TARGET": tmp_path / "target", "OUT/": f"{tmp_path / out}/"}
        found = [*CORPUS[name], "--model", str(model_folder), "--batch-size", "2"]
        for text, place in places.items():
            found = [word.replace(text, str(place)) for word in found]
        return (found,)

    whole_and_killed(tmp_path / "log", name, main, words("whole"), words("killed"), times=8)
    expected, found = (bytes_of(tmp_path / out) for out in ("whole", "killed"))
    found = {path: data for path, data in found.items() if not path.endswith(".part")}  # a kill may leave one behind
    assert found.keys() == expected.keys()
    assert found == expected
    assert any("bad" in path for path in expected)
