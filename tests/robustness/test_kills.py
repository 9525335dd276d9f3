"""Every trainer and every corpus run, killed at random moments and started again: the same weights, the same bytes."""

import multiprocessing
import os
import random
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tqdm import tqdm

from hf_nmt_interp.cli.main import main
from hf_nmt_interp.training.checkpoints import list_checkpoints
from tests.shard_files import bytes_of
from tests.trainer_scripts.every_trainer import RUNS, command_line, options_of

SMALL = {"max_steps": 12, "save_steps": 2, "tokens_per_batch": 100, "learning_rate": 1e-2, "card_sentences": 0}
MEASURED = {"contribution_steps": [0, 3, 8]}
MORE = {
    "translation": {"source_word_dropout": 0.1, "average_last": 2, "save_total_limit": 2} | MEASURED,
    "seq2seq": {"source_word_dropout": 0.1},
    "l0": MEASURED,
}


def begin(log, run, *arguments):
    """Call a function in a process of its own, which has everything imported already; what it says goes to a file."""

    def call():
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = sys.stderr = os.fdopen(out, "w", buffering=1)  # every line is written at once
        tqdm.set_lock(threading.RLock())  # the usual one is shared with forks: who is killed with it stops all others
        sys.exit(run(*arguments))

    process = multiprocessing.get_context("fork").Process(target=call)
    process.start()
    return process


def train(name, words):
    sys.argv = words
    RUNS[name][0].main()


def killed_often(log, seed, seconds, run, arguments, progress, times=6):
    """Begin a run again and again and kill it at random moments; yields after each kill.

    Half of the times, and the first two, it is killed soon after it has got further, else at any moment. So its speed,
    which other processes change, does not matter.

    Args:
        log: file for what it says.
        seed: of the moments.
        seconds: that a whole run takes, roughly.
        run: the function.
        arguments: of the function.
        progress: how far it has got, as a number; 0 is nothing to go on from.
        times: it is begun.
    """
    moments, kills = random.Random(seed), 0
    for number in range(times):
        gets_further = number < 2 or moments.random() < 0.5
        goal = progress() + gets_further
        process = begin(log, run, *arguments)
        while process.is_alive() and progress() < goal:
            time.sleep(0.002)
        process.join(moments.uniform(0, seconds / 30 if gets_further else seconds / 3))
        process.kill()
        process.join()
        assert process.exitcode in (-9, 0), log.read_text()  # 0: it has ended by itself; the next one finds that
        kills += process.exitcode == -9
        yield
    assert kills >= 2, log.read_text()


def to_the_end(log, run, *arguments):
    """Run; how many seconds it took."""
    started = time.monotonic()
    process = begin(log, run, *arguments)
    process.join()
    assert process.exitcode == 0, log.read_text()
    return time.monotonic() - started


def final_weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.safetensors"))
    return {str(path): load_file(folder / path) for path in paths if not str(path).startswith("checkpoint")}


def last_step(folder: Path) -> int:
    return max((int(path.name.split("-")[1]) for path in list_checkpoints(folder, complete=False)), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_trainers_end_with_the_same_weights(start, tmp_path, name):
    model, data = start
    more = MORE.get(name, {}) | {"train": data["train"], "valid": data["test"]}
    options = options_of(name, model, **SMALL, **more)
    whole, killed, log = tmp_path / "whole", tmp_path / "killed", tmp_path / "log"
    seconds = to_the_end(log, train, name, command_line(name, options | {"output_dir": whole}))
    arguments = name, command_line(name, options | {"output_dir": killed})
    for _ in killed_often(log, name, seconds, train, arguments, lambda: last_step(killed)):
        assert list_checkpoints(killed)[-1:] == list_checkpoints(killed, complete=False)[-1:]  # named when whole
    last = list_checkpoints(killed)[-1]
    to_the_end(log, train, *arguments)
    begun = [line for line in log.read_text().splitlines() if line.startswith(("Resuming from", "Starting a new run"))]
    assert begun[-1] == f"Resuming from {last}"
    expected, found = (final_weights(folder) for folder in (whole, killed))
    assert found.keys() == expected.keys()
    for path, weights in expected.items():
        torch.testing.assert_close(found[path], weights, rtol=0, atol=0, msg=lambda text, path=path: f"{path}: {text}")
    histories = {path.name: path.read_text() for path in whole.glob("*.csv")}
    measured = {"contributions.csv"} if "contribution_steps" in more else set()
    assert set(histories) == measured | ({"gates.csv"} if name == "l0" else set())
    assert {path.name: path.read_text() for path in killed.glob("*.csv")} == histories
    left = [path for path in killed.rglob("*") if path.suffix == ".part" or path.parent.name == "unfinished"]
    assert not left
    assert not list(killed.rglob("training_args.bin"))


SHARDS = ["--shard-size", "5", "--shards", "OUT/run"]
TEXT = ["--shard-size", "5", "--output", "OUT/links", "--translations", "OUT/text", "--resume"]
CORPUS = {
    "attribute": ["attribute", "--input", "SOURCE", "--target-file", "TARGET", "--method", "attention", *SHARDS],
    "parquet": ["attribute", "--input", "SOURCE", "--method", "attention", "--shard-format", "parquet", *SHARDS],
    "contributions": ["contributions", "--input", "SOURCE", "--target-file", "TARGET", *SHARDS],
    "heads": ["heads", "--input", "SOURCE", "--target-file", "TARGET", *SHARDS],
    "align": ["align", "SOURCE", "TARGET", "--method", "attention", *SHARDS],
    "text": ["align", "SOURCE", "--method", "attention", *TEXT],
}


def times_of(folder: Path) -> dict[Path, int]:
    """When each finished shard of a run was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/shards/[0-9]*")}


def count_shards(folder: Path) -> int:
    """How many shards are finished; `--output` may remove them at the same moment."""
    return sum(name[0].isdigit() for place, _, names in os.walk(folder) if place.endswith("/shards") for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPUS)
def test_killed_corpus_runs_end_with_the_same_bytes(model_folder, tmp_path, name):
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

    log, killed, written = tmp_path / "log", tmp_path / "killed", {}
    seconds = to_the_end(log, main, *words("whole"))
    arguments = words("killed")
    for _ in killed_often(log, name, seconds, main, arguments, lambda: count_shards(killed)):
        if not (killed / "links").exists():  # `--output` is complete then, and a new run may have begun
            assert times_of(killed)
            assert written.items() <= times_of(killed).items()  # finished shards were not written again
        written = times_of(killed)
    to_the_end(log, main, *arguments)
    assert written.items() <= times_of(killed).items() or name == "text"
    expected, found = bytes_of(tmp_path / "whole"), bytes_of(killed)
    assert found.keys() == expected.keys()  # nothing half-written is left
    assert found == expected
    assert any("bad" in path for path in expected)
