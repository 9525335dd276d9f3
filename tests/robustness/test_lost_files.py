"""No file of the user is lost: side files, kills that may clean up, full disks, two runs in one folder.

Also for text/locks.py.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.locks import LOCK, locked, stoppable
from tests.shard_files import SOURCES
from trainer_scripts import train_translation


def test_files_beside_an_output_belong_to_no_other_argument(run, tmp_path):
    """The list of refused lines, and the numbers of a figure, unless they are the output itself."""
    (tmp_path / "a").write_text("A dog.\n")
    out, never = tmp_path / "zy", ["--model", tmp_path / "never-loaded"]
    for verb, *arguments, flag, file in (
        ("align", tmp_path / "a", "--translations", f"{out}.bad", "--output", out, "--output", f"{out}.bad"),
        ("heads", "--figure", f"{out}.svg", "--relations-figure", f"{out}.png", "--figure", f"{out}.csv"),
    ):
        code, _, err = run(verb, *never, *arguments)
        assert (code, f"{flag}: {file} is also used by another argument" in err) in ((2, True),), err
    code, _, err = run("heads", *never, "--figure", f"{out}.svg", "--output", f"{out}.csv", "A dog.")
    assert "does not exist" in err  # the figure's numbers are the report


def start(*arguments, **options):
    command = [sys.executable, "-m", "hf_nmt_interp", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_sigterm_cleans_up_as_ctrl_c_does(model_folder, tmp_path):
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SOURCES * 400))
    given = "translate", "--model", model_folder, "--batch-size", 1, "--input", tmp_path / "in"
    process = start(*given, "--output", tmp_path / "out")
    ended = time.monotonic() + 60
    while not list(tmp_path.glob(".out.*.part")) and time.monotonic() < ended:
        time.sleep(0.05)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "hf-nmt-interp translate: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_sigterm_ends_a_training_in_one_line(capsys, monkeypatch):
    from hf_nmt_interp.training.launch import run_script

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        run_script(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert ended.value.code == 143
    assert capsys.readouterr().err.endswith("interrupted; run the same command again to resume\n")
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.setattr("threading.current_thread", lambda: None)  # signals are for the main thread only
    with stoppable():
        assert signal.getsignal(signal.SIGTERM) is before


@contextmanager
def small_disk(size: int):
    """Inside, files end after so many bytes, as on a full disk."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("verb", ["prune", "best-attention", "contributions"])
def test_a_full_disk_leaves_no_half_folder_and_no_half_figure(run, gated_folder, tmp_path, verb):
    for name, text in (("links", "0-0\n"), ("s", "A dog\n"), ("t", "Ein Hund\n")):
        (tmp_path / name).write_text(text)
    pairs = ["--input", tmp_path / "s", "--target-file", tmp_path / "t"]
    command = {
        "prune": ["--output", tmp_path / "new"],
        "best-attention": ["--gold", tmp_path / "links", tmp_path / "s", tmp_path / "t", "--save", tmp_path / "new"],
        "contributions": [*pairs, "--figure", tmp_path / "new.svg"],
    }[verb]
    with small_disk(2000):
        code, _, err = run(verb, "--model", gated_folder, *command)
    assert (code, err.count("\n"), "File too large" in err) == (2, 1, True), err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["links", "s", "t"]
    assert run(verb, "--model", gated_folder, *command).code == 0


def test_a_second_run_in_a_folder_is_refused(tmp_path):
    for _ in range(2):  # what a run leaves is in nobody's way
        with locked(tmp_path / "run", "--shards"):
            with (
                pytest.raises(InputError, match=r"--shards: '.*run' is in use by another run; wait until it ends, or"),
                locked(tmp_path / "run", "--shards"),
            ):
                pytest.fail("two runs")
            assert (tmp_path / "run" / LOCK).exists()
        assert not (tmp_path / "run").exists()
        (tmp_path / "run").mkdir()  # an empty folder of the user's stays
        with locked(tmp_path / "run", "--shards"):
            pass
        (tmp_path / "run").rmdir()
    (tmp_path / LOCK).touch()  # of a run that was killed
    with locked(tmp_path, "--shards"):
        pass


def test_a_second_corpus_run_and_training_are_refused(run, model_folder, tmp_path, monkeypatch):
    (tmp_path / "in").write_text("A dog.\n")
    message = "is in use by another run; wait until it ends, or choose another folder"
    given = "--model", model_folder, "--method", "attention"
    with locked(tmp_path / "run", "--shards"):
        code, _, err = run("attribute", *given, "--input", tmp_path / "in", "--shards", tmp_path / "run")
        assert (code, err) == (2, f"hf-nmt-interp attribute: error: --shards: '{tmp_path / 'run'}' {message}\n")
    with locked(tmp_path / "out.shards", "--output"):
        code, _, err = run("align", *given, tmp_path / "in", "--output", tmp_path / "out")
        assert (code, f"--output: '{tmp_path / 'out.shards'}' {message}" in err) == (2, True)
    words = ["--output_dir", tmp_path / "out", "--train", tmp_path / "in", tmp_path / "in", "--model", model_folder]
    monkeypatch.setattr(sys, "argv", [train_translation.__file__, *map(str, words)])
    with locked(tmp_path / "out", "--output_dir"), pytest.raises(InputError, match=f"--output_dir: .*{message}"):
        train_translation.main()


def test_no_locks_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hf_nmt_interp.text.locks.fcntl", None)
    with locked(tmp_path, "--shards"):
        expected = f"{tmp_path}: file locks are not supported here; do not start a second run in this folder\n"
        assert capsys.readouterr().err == expected
