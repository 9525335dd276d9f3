"""The table of all methods; also for cli/verbs/compare_methods.py."""

import copy
import json
import platform

import numpy as np
import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.attribution.registry import METHODS, make_method, word_settings
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.faithfulness import compare
from hf_nmt_interp.studies import methods_compared as module
from hf_nmt_interp.studies.methods_compared import OWN, compare_methods, measured, methods_for
from tests.tiny_models import tiny_model

SOURCES = ["the cat sleeps", "a dog reads my book"]
GOLD = (
    [["the", "cat"], ["my", "book", "sleeps"]],
    [["a", "dog"], ["the", "garden"]],
    [{(0, 0)}, {(1, 1)}],
    [{(0, 0), (1, 1)}, {(1, 1), (2, 1)}],
)


@pytest.fixture(scope="module")
def translator(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    return tiny_model("marian", vocab_size=len(tokenizer)), tokenizer


def test_columns_are_those_of_the_parts(translator):
    asked = {"a": ("attention", {"layer": 0}), "b": ("alti", {})}
    generate = {"max_length": 7}
    rows = {row["method"]: row for row in compare_methods(*translator, SOURCES, GOLD, asked, 2, generate)}
    assert set(rows) == {"a", "b", OWN, "random"}
    methods = {label: make_method(translator[0], name, **settings) for label, (name, settings) in asked.items()}
    expected = compare(*translator, SOURCES, methods, 2, generate)
    for label, (name, settings) in asked.items():
        links = hni.align(*translator, *GOLD[:2], method=name, **settings)
        assert rows[label]["aer"] == pytest.approx(100 * hni.alignment_error_rate(links, *GOLD[2:])["aer"])
        assert rows[label]["compr"] == pytest.approx(expected[label].area["comprehensiveness"], abs=1e-6)
        assert rows[label]["sec"] > 0
    default = hni.align(*translator, *GOLD[:2])
    assert rows[OWN]["aer"] == pytest.approx(100 * hni.alignment_error_rate(default, *GOLD[2:])["aer"])
    assert rows["random"]["aer"] is rows["random"]["sec"] is None


def test_a_folder_keeps_what_was_computed_for_the_same_weights_texts_and_settings(translator, tmp_path, monkeypatch):
    model, tokenizer = translator
    asked = {"a": ("attention", {"layer": 0})}
    first = compare_methods(model, tokenizer, SOURCES, GOLD, asked, folder=tmp_path)
    calls = []
    monkeypatch.setattr(module, "measured", lambda *args: calls.append(args) or ([], {}))
    np.testing.assert_equal(compare_methods(model, tokenizer, SOURCES, GOLD, asked, folder=tmp_path), first)
    assert calls == []
    monkeypatch.undo()
    again = compare_methods(model, tokenizer, SOURCES, GOLD, {"a": ("attention", {"layer": 1})}, folder=tmp_path)
    fresh = compare_methods(model, tokenizer, SOURCES, GOLD, {"a": ("attention", {"layer": 1})})
    names = ("method", "compr", "suff", "aer")
    rows = [[{name: row[name] for name in names} for row in found] for found in (again, fresh)]
    assert rows[0] == rows[1]
    other = tiny_model("marian", vocab_size=len(tokenizer), seed=1)
    compare_methods(other, tokenizer, SOURCES, GOLD, asked, folder=tmp_path)
    assert len(list(tmp_path.glob("aer-a-*.json"))) == 3  # two settings, and other weights


def test_a_folder_keeps_results_of_one_type_and_one_default_attention(translator, tmp_path, monkeypatch):
    model, tokenizer = translator
    half = copy.deepcopy(model).bfloat16()
    asked = {"a": ("attention", {"layer": 0})}
    for same in (half, copy.deepcopy(half).float()):  # the same weights in two types
        compare_methods(same, tokenizer, SOURCES, GOLD, asked, folder=tmp_path)
    assert len(list(tmp_path.glob("aer-a-*.json"))) == 2
    for layer in (0, 1):
        choice = {"layer": layer, "head": 1, "shifted": False, "aer": 0.5}
        monkeypatch.setattr(model.config, "alignment", choice, raising=False)
        compare_methods(model, tokenizer, SOURCES, GOLD, asked, folder=tmp_path)
    assert len(list(tmp_path.glob("aer-a-*.json"))) == 3
    assert len(list(tmp_path.glob("aer-align-*.json"))) == 4


def test_every_method_that_fits_is_compared(translator):
    assert set(methods_for(translator[0])) >= {name for name in METHODS if name not in ("mask", "alignment_head")}
    assert "mask" not in methods_for(translator[0])
    assert methods_for(translator[0])["lrp:rule=attnlrp"] == ("lrp", {"rule": "attnlrp"})
    assert word_settings(*methods_for(translator[0])["lrp"]) == {"logit": "label"}


def test_memory_is_what_was_needed_beyond_that_in_use():
    def run():
        return float(np.ones(2**24).sum())  # 128 MB, given back

    found, cost = measured(run, "cpu", 4)
    assert found == 2**24
    if cost["MB"] is not None:  # Linux
        assert 120 < cost["MB"] < 140
    again = measured(lambda: None, "cpu", 1)[1]["MB"]
    assert again is None or again < 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to return memory")
def test_what_earlier_work_freed_does_not_hide_memory():
    def run():
        small = [np.ones(2**13) for _ in range(1600)]  # 100 MB
        return small[-1]  # as long as it is used, the heap keeps the others

    first, second = measured(run, "cpu", 1), measured(run, "cpu", 1)
    assert min(first[1]["MB"], second[1]["MB"]) > 90


@pytest.mark.parametrize(
    ("sources", "gold", "message"),
    [([], GOLD, "sources: is empty"), (SOURCES, ([], [], [], []), "gold: is empty; give at least one")],
)
def test_nothing_to_compare_is_an_error(translator, sources, gold, message):
    with pytest.raises(InputError, match=message):
        compare_methods(*translator, sources, gold)


def test_the_verb_prints_the_table(run, model_folder, tmp_path):
    for name, text in (("g", "0-0\n0-0 1p1\n"), ("s", "A dog\nA dog sleeps.\n"), ("t", "Ein Hund\nEin Hund.\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    given = ["--method", "attention", "--gold", *(tmp_path / name for name in "gst"), "--pairs", 1, "--format", "json"]
    code, out, err = run("compare-methods", *given, "--model", model_folder, "A dog sleeps.")
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["method"] for row in rows} == {"attention", OWN, "random"}
    assert list(rows[0])[-4:] == ["aer", "a_ci", "sec", "MB"]
    code, _, err = run("compare-methods", *given[2:], "--method", "magic", "--model", model_folder, "A dog sleeps.")
    assert code == 2
    assert "error: --method: 'magic' is not one of lrp, alti" in err
