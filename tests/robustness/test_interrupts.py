"""Ctrl-C as a terminal sends it (SIGINT) while a verb or a trainer works: one line, exit code 130, what is kept."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hf_nmt_interp.training.checkpoints import list_checkpoints
from tests.trainer_scripts.every_trainer import command_line, options_of


def interrupted(words: Sequence[object], is_started, log: Path) -> list[str]:
    """Start a command, interrupt it when it has started its work; the lines it wrote to stderr."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            env=environment,
            stdout=file,
            stderr=file,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # ignored by what a shell starts with &
        )
        try:
            deadline = time.monotonic() + 120
            while process.poll() is None and not is_started() and time.monotonic() < deadline:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
        finally:
            process.kill()
    assert code == 130, log.read_text()
    return log.read_text().splitlines()


def test_a_verb_says_what_is_kept_and_resumes(run, model_folder, tmp_path):
    source, output = tmp_path / "source", tmp_path / "links"
    source.write_text("The old dog sleeps.\n" * 1500)
    words = "align", "--model", model_folder, "--method", "attention", "--shard-size", 16, source, source
    words = *words, "--output", output
    shards = tmp_path / "links.shards" / "shards"
    lines = interrupted(["-m", "hf_nmt_interp", *words], lambda: any(shards.glob("0*")), tmp_path / "log")
    kept = f"complete parts are kept in {output}.shards, run the same command with --resume to continue"
    assert lines == [f"hf-nmt-interp align: interrupted; {kept}"]
    assert not output.exists()
    assert any(shards.glob("0*"))
    assert run(*words, "--resume").code == 0
    assert len(output.read_text().splitlines()) == 1500


def test_a_trainer_says_what_is_kept(start, tmp_path):
    _, data = start
    more = {"max_steps": 100_000, "save_steps": 2, "tokens_per_batch": 60, "output_dir": tmp_path / "run"}
    words = command_line("translation", options_of("translation", None, train=data["train"], **more))
    lines = interrupted(words, lambda: list_checkpoints(tmp_path / "run"), tmp_path / "log")
    last = list_checkpoints(tmp_path / "run")[-1]
    assert lines[-1] == (
        f"train_translation.py: interrupted; {last} is kept; run the same command again to resume from it"
    )
    assert "Traceback" not in "".join(lines)
