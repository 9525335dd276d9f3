"""Corpus runs on Tatoeba: sentences a second of each method, memory against length, two processes against one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.data]
METHODS = ["attention", "saliency", "smoothgrad", "lrp"]
SENTENCES = int(os.environ.get("HF_NMT_INTERP_BENCHMARK_SENTENCES", "2000"))
# the command, and the most memory it took (kB), on stdout
PROGRAM = """
import resource, sys
from hf_nmt_interp.cli.main import main
code = main(sys.argv[1:])
print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""


def command(data: Path, folder: Path, method: str, sentences: int) -> list[str]:
    text = data / "tatoeba_en-de"
    files = ["--input", str(text / "train.en"), "--target-file", str(text / "train.de"), "--limit", str(sentences)]
    return ["attribute", *files, "--method", method, "--shards", str(folder), "--shard-size", "250"]


def measure(arguments: list[str], **environment: str) -> tuple[float, float]:
    """Seconds and the most memory in MB."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - begin, int(done.stdout.split("PEAK ")[1]) / 1024


def test_sentences_a_second(data_dir, tmp_path) -> None:
    start, _ = measure(command(data_dir, tmp_path / "start", "attention", 1))  # imports and loading
    print(f"\n{SENTENCES} given translations, one process, one thread, after {start:.1f} s to start")
    for method in METHODS:
        seconds, memory = measure(command(data_dir, tmp_path / method, method, SENTENCES))
        print(f"{method:12} {SENTENCES / (seconds - start):8.1f} sentences/s   {memory:6.0f} MB")


def test_memory_does_not_grow_with_the_corpus(data_dir, tmp_path) -> None:
    few, many = SENTENCES // 4, SENTENCES * 5 // 2  # 500 and 5,000
    peaks = [measure(command(data_dir, tmp_path / str(n), "attention", n))[1] for n in (few, many)]
    print(f"\n{few} sentences: {peaks[0]:.0f} MB, {many}: {peaks[1]:.0f} MB")
    assert peaks[1] < 1.1 * peaks[0]


def test_two_processes_against_one(data_dir, tmp_path) -> None:
    one, _ = measure(command(data_dir, tmp_path / "one", "lrp", SENTENCES))
    begin = time.perf_counter()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "hf_nmt_interp", *command(data_dir, tmp_path / "two", "lrp", SENTENCES)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    two = time.perf_counter() - begin
    print(f"\none process: {one:.1f} s, two: {two:.1f} s, {one / two:.2f} times as fast")
    names = sorted(path.name for path in (tmp_path / "one/shards").iterdir())
    for name in names:
        assert (tmp_path / "one/shards" / name).read_bytes() == (tmp_path / "two/shards" / name).read_bytes()
