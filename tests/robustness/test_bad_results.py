"""Saved results that are cut off, changed, newer or not there: one line that names the file."""

import json
import os

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError


def test_results_that_cannot_be_read(translator_of, tmp_path):
    path = tmp_path / "result"
    model, tokenizer = translator_of("marian")
    hni.attribute(model, tokenizer, "A dog.", "Ein Hund.").save(path)
    whole = path.read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="is not a saved AttributionResult"):
            hni.AttributionResult.load(path)
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"model.safetensors is not a saved AttributionResult"):
        hni.AttributionResult.load(tmp_path / "model.safetensors")


def test_places_where_no_result_can_be_saved(translator_of, tmp_path):
    result = hni.attribute(*translator_of("marian"), "A dog.", "Ein Hund.", method="attention")
    os.mkfifo(tmp_path / "pipe")
    for name in (".", "pipe"):
        with pytest.raises(InputError, match=rf"path: {tmp_path / name} is a folder or a device; give a file"):
            result.save(tmp_path / name)
    with pytest.raises(InputError, match=rf"path: {tmp_path}/none/x cannot be written \(.*No such file or directory"):
        result.save(tmp_path / "none" / "x")
    assert (tmp_path / "pipe").is_fifo()


def rewritten(path, arrays=None, **metadata):
    """Save a result again with other arrays or another header."""
    with safe_open(path, "np") as file:
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()
    save_file({name: a for name, a in (kept | (arrays or {})).items() if a is not None}, path, header | metadata)


@pytest.mark.parametrize(
    ("arrays", "change", "reason"),
    [
        ({}, {"version": "x"}, "invalid literal"),
        ({}, {"format": "x"}, "it is of another format"),
        ({}, {"result": "{"}, "Expecting property name"),
        ({}, {"result": "[]"}, "'source_side'"),
        ({}, {"result": '"x"'}, "dictionary update sequence"),
        ({"start": None}, {}, "missing 1 required positional argument: 'start'"),
        ({"start": np.zeros(1, np.float32)}, {}, r"start: shape \(1,\) does not fit"),
        ({"source": np.zeros((2, 2), np.int32)}, {}, "source must have floats"),
        ({"x": np.zeros(1, np.float32)}, {}, "unexpected keyword argument 'x'"),
    ],
)
def test_results_that_were_changed(translator_of, tmp_path, arrays, change, reason):
    path = tmp_path / "result"
    hni.attribute(*translator_of("marian"), "A dog.", "Ein Hund.", method="attention").save(path)
    rewritten(path, arrays, **change)
    with pytest.raises(InputError, match=rf"path: {path} is not a saved AttributionResult \(.*{reason}"):
        hni.AttributionResult.load(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"word_ids": [0]}, "its lists differ in length"),
        ({"words": []}, "a token belongs to a missing word"),
        ({"words": [1, 2]}, "its tokens and words must be text"),
        ({"x": 1}, "unexpected keyword argument 'x'"),
    ],
)
def test_results_with_other_sides(translator_of, tmp_path, change, reason):
    path = tmp_path / "result"
    result = hni.attribute(*translator_of("marian"), "A dog.", "Ein Hund.", method="attention")
    result.save(path)
    with safe_open(path, "np") as file:
        rest = json.loads(file.metadata()["result"])
    rest["target_side"] |= change
    rewritten(path, result=json.dumps(rest))
    with pytest.raises(InputError, match=rf"path: {path} is not a saved AttributionResult \(.*{reason}"):
        hni.AttributionResult.load(path)


def test_results_that_are_not_there_or_newer(translator_of, tmp_path):
    for path, reason in ((tmp_path / "none", "No such file or directory"), (tmp_path, "")):
        with pytest.raises(InputError, match=rf"path: {path} is not a saved AttributionResult \(.*{reason}"):
            hni.AttributionResult.load(path)
    path = tmp_path / "result"
    hni.attribute(*translator_of("marian"), "A dog.", "Ein Hund.", method="attention").save(path)
    rewritten(path, {"later": np.zeros(1, np.int32)}, version="99", result="?")
    with pytest.raises(InputError, match=rf"path: {path} has version 99; update hf_nmt_interp to read it"):
        hni.AttributionResult.load(path)
