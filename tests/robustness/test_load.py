"""Threads that share a model, and a thousand calls: right results, nothing left behind."""

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.errors import InputError
from tests.attribution.leaks import state_of
from tests.fitting import fitting

SOURCES = ["The old dog sleeps under the table.", "A car!", "Two children are looking for shells.", "She said no."]
TARGETS = ["Der alte Hund schläft.", "Ein Auto!", "Zwei kleine Kinder suchen Muscheln.", "Sie sagte nein."]


def of(translator_of, method):
    """A tiny model that the method can explain, and its tokenizer."""
    model, tokenizer = translator_of("marian")
    return fitting(method, model), tokenizer


def without_weights(model) -> dict:
    return {name: value for name, value in state_of(model).items() if name != "weights"}


@pytest.mark.parametrize("method", METHODS)
def test_eight_threads_that_share_a_model(translator_of, method):
    model, tokenizer = of(translator_of, method)
    model.train()  # the hard case: evaluation mode is switched on and off while others are at work
    expected = hni.attribute(model, tokenizer, SOURCES, TARGETS, method=method)
    before = without_weights(model)

    def explain(n: int) -> np.ndarray:
        return hni.attribute(model, tokenizer, SOURCES[n % 4], TARGETS[n % 4], method=method).source

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(explain, range(16)))
    for n, source in enumerate(found):
        np.testing.assert_allclose(source, expected[n % 4].source, atol=1e-5)
    assert without_weights(model) == before
    assert model.training


@pytest.mark.parametrize("method", ["attention", "mask"])
def test_eight_threads_that_let_a_model_translate(translator_of, method):
    model, tokenizer = of(translator_of, method)
    model.train()
    settings = {"method": method, "generate": {"num_beams": 2}}
    expected = hni.attribute(model, tokenizer, SOURCES, **settings)
    links = hni.align(model, tokenizer, SOURCES, **settings)
    before = without_weights(model)

    def explain(n: int) -> tuple:
        result = hni.attribute(model, tokenizer, SOURCES[n % 4], **settings)
        return result, hni.align(model, tokenizer, SOURCES[n % 4], **settings)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(explain, range(32)))
    for n, (result, own_links) in enumerate(found):
        assert result.translation == expected[n % 4].translation
        np.testing.assert_allclose(result.source, expected[n % 4].source, atol=1e-5)
        assert own_links == links[n % 4]
    assert without_weights(model) == before


def test_generation_of_one_model_is_recorded_by_one_thread_at_a_time(translator_of):
    model, tokenizer = translator_of("marian")
    inputs = tokenizer(SOURCES[1], return_tensors="pt")
    inside, errors = threading.Barrier(8), []

    def explain(n: int) -> list:
        inside.wait(30)
        try:
            with hni.explain_generation(model, tokenizer, method="attention") as explained:
                model.generate(inputs["input_ids"])
                deadline = time.monotonic() + 30
                while len(errors) < 7 and time.monotonic() < deadline:  # until the others have tried
                    time.sleep(0.01)
        except InputError as error:
            errors.append(str(error))
            return []
        return explained.results

    with ThreadPoolExecutor(8) as pool:
        found = [results for results in pool.map(explain, range(8)) if results]
    assert [len(results) for results in found] == [1]
    assert errors == 7 * ["model: its generate() is already being recorded; leave the other context first"]
    assert "generate" not in vars(model)
    refused = pytest.raises(InputError, match="already being recorded; leave the other context first")
    with hni.explain_generation(model, tokenizer) as explained, refused:  # its results would be mixed with theirs
        hni.attribute(model, tokenizer, "A car!", method="attention")
    assert not explained.results


def tensors() -> int:
    gc.collect()
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


THOUSAND = [pytest.param(method, 1000, marks=pytest.mark.slow) for method in METHODS]


@pytest.mark.parametrize(("method", "calls"), [("attention", 101), ("lrp", 21), ("mask", 21), *THOUSAND])
def test_a_thousand_calls_leave_nothing_behind(translator_of, tmp_path, method, calls):
    model, tokenizer = of(translator_of, method)
    settings = {"method": method} | ({"smoothgrad": 2} if method in ("smoothgrad", "smoothed_attention") else {})
    inputs = tokenizer(SOURCES[1], return_tensors="pt")["input_ids"]
    bias = model.final_logits_bias

    def call(source: str, target: str | None = None) -> None:
        result = hni.attribute(model, tokenizer, source, target, **settings)
        result.save(tmp_path / "result")
        hni.AttributionResult.load(tmp_path / "result")

    def others() -> None:
        call("A car!")
        hni.align(model, tokenizer, "A car!", "Ein Auto!", **settings)
        hni.align(model, tokenizer, "A car!", **settings)
        with hni.explain_generation(model, tokenizer, **settings) as explained:
            model.generate(inputs)
        assert len(explained.results) == 1
        with pytest.raises(InputError, match="tokens, but the model has 64 positions"):  # before the work
            hni.attribute(model, tokenizer, "A car!", "word " * 100, **settings)
        kept = bias[0, 3].item()
        bias[0, 3] = float("nan")
        with pytest.raises(InputError, match="its logits are not finite"):  # in the midst of it
            hni.attribute(model, tokenizer, "A car!", "Ein Auto!", **settings)
        bias[0, 3] = kept

    for _ in range(3):  # what is made once, such as caches, is made now
        call("A car!", "Ein Auto!")
        others()
    process = psutil.Process(os.getpid())
    state = state_of(model)
    before = tensors(), process.num_fds(), threading.active_count()
    memory = process.memory_info().rss
    for n in range(calls):
        call(SOURCES[n % 4], TARGETS[n % 4])
        if n % 20 == 0:
            others()
    assert (tensors(), process.num_fds(), threading.active_count()) == before
    assert process.memory_info().rss - memory < 20 * 2**20
    after = state_of(model)
    assert after["hooks"] == state["hooks"]
    assert after["attributes"] == state["attributes"]


LINES = 50_000


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["align", "attribute", "translate"])
def test_fifty_thousand_lines_in_flat_memory(model_folder, tmp_path, verb, capsys):
    (tmp_path / "source").write_text("".join(f"{SOURCES[n % 4]} {n}\n" for n in range(LINES)))
    (tmp_path / "target").write_text("".join(f"{TARGETS[n % 4]} {n}\n" for n in range(LINES)))
    files = tmp_path / "source", tmp_path / "target"
    places = {
        "align": [*files, "--output", tmp_path / "links"],
        "attribute": ["--input", files[0], "--target-file", files[1], "--shards", tmp_path / "run"],
        "translate": ["--input", files[0], "--output", tmp_path / "links"],
    }
    method = [] if verb == "translate" else ["--method", "attention"]
    command = [verb, *places[verb], "--model", model_folder, *method]
    started = time.monotonic()
    process = psutil.Popen([sys.executable, "-m", "hf_nmt_interp", *map(str, command)], stdout=subprocess.DEVNULL)
    sizes = []
    while process.poll() is None:
        sizes.append(process.memory_info().rss / 2**20)
        time.sleep(0.5)
    assert process.returncode == 0
    begun = [size for size in sizes[len(sizes) // 5 :] if size]  # after the first windows; a process at its end has 0
    with capsys.disabled():
        seconds = time.monotonic() - started
        print(f"\n{verb}: {LINES:,} lines in {seconds:.0f} s, {min(begun):.0f} to {max(begun):.0f} MB")
    assert max(begun) - min(begun) < 60
    outputs = sorted(tmp_path.glob("run/shards/*.jsonl")) if verb == "attribute" else [tmp_path / "links"]
    assert sum(file.read_bytes().count(b"\n") for file in outputs) == LINES
