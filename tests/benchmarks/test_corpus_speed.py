"""Corpus runs: sentences a second of each method, memory against length, two processes against one.

On the first sentences of Tatoeba in the folder named by HF_NMT_INTERP_DATA; without it on a made-up language.
"""

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.cli.main import main
from hf_nmt_interp.decoding.precision import PRECISIONS
from tests.benchmarks.base_size import base_model
from tests.benchmarks.test_method_speed import has_bfloat16
from tests.benchmarks.test_threads import busy_process
from tests.made_up_corpus import made_up_pairs, write_parallel

pytestmark = pytest.mark.benchmark
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


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Files of sources and of their translations."""
    if "HF_NMT_INTERP_DATA" in os.environ:
        folder = Path(os.environ["HF_NMT_INTERP_DATA"], "tatoeba_en-de")
        found = [str(folder / "train.en"), str(folder / "train.de")]
    else:
        found = write_parallel(tmp_path_factory.mktemp("corpus"), "made-up", made_up_pairs(5 * SENTENCES // 2))
    print(f"\n{found[0]}, translations given, one thread a process")
    return found


def command(corpus: list[str], folder: Path, method: str, sentences: int) -> list[str]:
    files = ["--input", corpus[0], "--target-file", corpus[1], "--limit", str(sentences)]
    return ["attribute", *files, "--method", method, "--shards", str(folder), "--shard-size", "250"]


def begin(arguments: list[str], **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )


def measure(*processes: subprocess.Popen) -> tuple[float, float]:
    """Seconds until all have ended, and the most memory of one in MB."""
    started = time.perf_counter()
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return time.perf_counter() - started, max(int(text.split("PEAK ")[1]) for text in printed) / 1024


def test_sentences_a_second(corpus, tmp_path) -> None:
    start, _ = measure(begin(command(corpus, tmp_path / "start", "attention", 1)))  # imports and loading
    print(f"{SENTENCES} sentences, after {start:.1f} s to start")
    seconds = {}
    for method in METHODS:
        seconds[method], memory = measure(begin(command(corpus, tmp_path / method, method, SENTENCES)))
        print(f"{method:12} {SENTENCES / (seconds[method] - start):8.1f} sentences/s   {memory:6.0f} MB")

    places = [{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    two, memory = measure(*(begin(command(corpus, tmp_path / "two", "lrp", SENTENCES), **place) for place in places))
    rate, ratio = SENTENCES / (two - start), (seconds["lrp"] - start) / (two - start)
    print(f"lrp, two processes: {rate:.1f} sentences/s, {memory:.0f} MB each, {ratio:.2f} times as fast")
    assert ratio > 1.2 or (os.cpu_count() or 1) < 2
    shards = [sorted((tmp_path / name / "shards").iterdir()) for name in ("lrp", "two")]
    assert [path.read_bytes() for path in shards[0]] == [path.read_bytes() for path in shards[1]]


def test_memory_does_not_grow_with_the_corpus(corpus, tmp_path) -> None:
    few, many = SENTENCES // 4, SENTENCES * 5 // 2  # 500 and 5,000
    peaks = [measure(begin(command(corpus, tmp_path / str(n), "attention", n)))[1] for n in (few, many)]
    print(f"\nattention of {few} sentences: {peaks[0]:.0f} MB, of {many}: {peaks[1]:.0f} MB")
    assert peaks[1] < 1.1 * peaks[0]


def base_corpus() -> tuple:
    """A random model of base size, a tokenizer for it, and 12 sentence pairs."""
    model, tokenizer = base_model(), hni.load_demo("en-de")[1]
    for name, own in (("pad", "pad"), ("eos", "eos"), ("decoder_start", "pad"), ("forced_eos", "eos")):
        for config in (model.config, model.generation_config):
            setattr(config, f"{name}_token_id", getattr(tokenizer, f"{own}_token_id"))
    pairs = [
        (
            f"The cat sleeps on the sofa and {n} dogs sleep in the garden.",
            f"Die Katze schläft auf dem Sofa und {n} Hunde.",
        )
        for n in range(12)
    ]
    return model, tokenizer, pairs


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("busy", "goal"), [(False, 1.6), (True, 1 / 1.2)])
def test_a_corpus_on_two_threads(busy, goal) -> None:
    """LRP and gradients of 12 sentences at base size, by the clock, on two threads and on one."""
    model, tokenizer, pairs = base_corpus()
    sources, targets = map(list, zip(*pairs, strict=True))
    ratios = {}
    with busy_process() if busy else nullcontext():
        for method in ("lrp", "saliency"):
            taken: dict[int, list[float]] = {1: [], 2: []}
            for threads in (1, 2) * 3:
                torch.set_num_threads(threads)
                start = time.perf_counter()
                hni.attribute(model, tokenizer, sources, targets, method=method, batch_size=6)
                taken[threads].append(time.perf_counter() - start)
            ratios[method] = min(taken[1]) / min(taken[2])
    listed = " ".join(f"{method} {ratio:.2f} times as fast" for method, ratio in ratios.items())
    print(f"\na corpus on two threads{', beside a busy process' * busy}: {listed}")
    assert min(ratios.values()) >= goal


@pytest.mark.skipif(not has_bfloat16(), reason="the processor has no products of bfloat16")
@pytest.mark.usefixtures("one_thread")
def test_a_corpus_in_bfloat16(tmp_path) -> None:
    """SmoothGrad of 12 sentences at base size, in processor seconds after loading, with and without bfloat16."""
    model, tokenizer, pairs = base_corpus()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "base")
    corpus = write_parallel(tmp_path, "sentences", pairs)

    def seconds(method: str, *settings: str) -> float:
        run = command(corpus, tmp_path / "-".join((method, *settings)), method, 12)
        more = [word for setting in settings for word in ("--set", setting)]
        start = time.process_time()
        assert main([*run, *more, "--model", str(tmp_path / "base"), "--strict"]) == 0
        return time.process_time() - start

    loading = seconds("attention")
    wide, narrow = (seconds("smoothgrad", "smoothgrad=4", f"precision={x}") - loading for x in PRECISIONS)
    print(f"\nsmoothgrad of 4 copies: {wide:.1f} s, bfloat16 {narrow:.1f} s: {wide / narrow:.2f} times faster")
    assert wide / narrow >= 1.6
