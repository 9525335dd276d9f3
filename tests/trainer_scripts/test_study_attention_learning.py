"""The script end to end: both tasks, going on, what it writes, wrong arguments.

Also for training/attention_tasks.py.
"""

import csv
import sys
from dataclasses import fields

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.attention_learning import RUNS, read_snapshots
from hf_nmt_interp.studies.snapshots import Snapshot
from tests.made_up_corpus import made_up_pairs, write_parallel
from trainer_scripts import study_attention_learning

SMALL = ["--max_length", "30", "--tokens_per_batch", "100", "--early_steps", "0", "2", "--every", "2", "--save_steps"]
SMALL += ["2", "--set", "embedding_size=8", "hidden_size=8"]


@pytest.fixture
def run(monkeypatch, capsys):
    def call(out, *more):
        monkeypatch.setattr(sys, "argv", ["study_attention_learning.py", "--output_dir", str(out), *SMALL, *more])
        study_attention_learning.main()
        return capsys.readouterr().out

    return call


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder, pairs = tmp_path_factory.mktemp("corpus"), made_up_pairs(60)
    splits = {"train": pairs[:50], "valid": pairs[50:]}
    return [word for name, pairs in splits.items() for word in (f"--{name}", *write_parallel(folder, name, pairs))]


def same(one: Snapshot, other: Snapshot) -> bool:
    return all(torch.allclose(score, other.scores[name], atol=1e-5) for name, score in one.scores.items())


def test_translation_goes_on_where_it_was_stopped(tmp_path, run, corpus, monkeypatch):
    words = [*corpus, "--vocab_size", "70", "--max_steps", "4", "--uniform_steps", "3", "--paper", "Multi30k"]
    whole = run(tmp_path / "whole", *words)
    assert whole.splitlines()[-1].split() == ["paper", "31", "34", "27", "49", "7", "43", "49", "66"]
    monkeypatch.setattr("hf_nmt_interp.report.attention_learning.write_learning", lambda *_: None)
    run(tmp_path / "parts", *[word if word != "4" else "2" for word in words])
    run(tmp_path / "parts", *words)
    for name in RUNS:
        found = {folder: read_snapshots(tmp_path / folder / name) for folder in ("whole", "parts")}
        assert list(found["whole"]) == ([0, 2, 3] if name == "uniform" else [0, 2, 4])
        last = max(found["whole"])
        assert same(found["whole"][last], found["parts"][last])
    assert set(found["whole"][4].scores) == {"alpha"}
    assert set(read_snapshots(tmp_path / "whole" / "standard")[4].scores) == {"alpha", "beta", "delta"}
    rows = list(csv.DictReader((tmp_path / "whole" / "row.csv").open()))
    assert [row["measure"] for row in rows] == ["agreement", "kendall_tau"]
    assert 0 < float(rows[0]["A(random)"]) < 100
    assert (tmp_path / "whole" / "curves.svg").exists()
    assert (tmp_path / "whole" / "curves.csv").exists()
    folder = tmp_path / "whole" / "standard"
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert hni.align(model, tokenizer, *made_up_pairs(1)[0], method="attention")


def test_classification_finds_planted_keywords(tmp_path, run):
    out = run(tmp_path / "a", "--task", "classification", "--max_steps", "2", "--max_valid", "30")
    assert "second_seed, step 2:" in out
    assert "A(α,βuf)" in out
    kept = read_snapshots(tmp_path / "a" / "standard")[2].kept
    assert kept.shape[0] == 30  # one output word a text
    files = [str(tmp_path / "a" / f"planted-{split}.tsv") for split in ("train", "valid")]
    words = ["--train", files[0], "--valid", files[1], "--max_valid", "30", "--max_steps", "2"]
    run(tmp_path / "b", "--task", "classification", *words)
    found = [read_snapshots(tmp_path / name / "standard")[2] for name in "ab"]
    assert same(*found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "parsing"], "--task: 'parsing' is not one of translation, classification"),
        ([], r"--train: \[\] does not name the data; give two text files or one JSONL file"),
        (
            ["--task", "classification", "--train", "a.tsv"],
            r"--train, --valid: \(\['a.tsv'\], \[\]\) must be one file each, or none",
        ),
    ],
)
def test_wrong_arguments_are_named(options, message, tmp_path, run):
    with pytest.raises(InputError, match=message):
        run(tmp_path, *options)


def test_every_argument_has_a_help_text():
    for argument in fields(study_attention_learning.StudyArguments):
        assert argument.metadata["help"].endswith("."), argument.name
