"""The script end to end: both tasks, going on, what it writes, wrong arguments.

Also for training/attention_tasks.py.
"""

import csv
import json
import sys
from dataclasses import fields

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer, set_seed

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.agreement.score import agreement
from hf_nmt_interp.studies.attention_learning import RUNS, read_snapshots
from hf_nmt_interp.studies.snapshots import Snapshot
from hf_nmt_interp.training.attention_tasks import Translation
from hf_nmt_interp.training.vocabulary import train_marian_tokenizer
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
    assert whole.splitlines()[-1].split() == ["table", "3", "22.94", "36.61", "22.94", "66.29"]
    assert "table 5     31.02" in whole
    monkeypatch.setattr("hf_nmt_interp.report.attention_learning.write_learning", lambda *_: None)
    run(tmp_path / "parts", *[word if word != "4" else "2" for word in words])
    run(tmp_path / "parts", *words)
    for name in [name for name in RUNS if name != "frozen"]:
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


@pytest.mark.slow
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


def test_frozen_attention_both_sets_and_bleu(tmp_path, run, corpus):
    words = [*corpus, "--vocab_size", "70", "--max_steps", "2", "--max_valid", "8", "--paper", "Multi30k"]
    words += ["--frozen", "--on", "valid", "train", "--performance", "bleu", "--bleu_sentences", "3"]
    out = run(tmp_path, *words)
    assert "BLEU" in out
    parts = ["on valid, ξ by bleu:", "table 6", "on valid, ξ by accuracy:", "table 5"]
    parts += ["on train, ξ by bleu:", "table 8", "on train, ξ by accuracy:", "table 7"]
    assert sorted(parts, key=out.index) == parts
    assert "A(α,αfr)" in out
    rows = {name: list(csv.DictReader((tmp_path / f"row{name}.csv").open())) for name in ("", "-train")}
    assert [row["performance"] for row in rows[""]] == ["bleu", "bleu", "accuracy", "accuracy"]
    first, second = (read_snapshots(tmp_path / "second_seed", on)[2] for on in ("valid", "train"))
    assert first.bleu is not None
    assert first.kept.shape != second.kept.shape  # other sentences
    assert float(rows["-train"][0]["xi*"]) == pytest.approx(100 * second.bleu)
    assert float(rows["-train"][2]["xi*"]) == pytest.approx(100 * second.performance)
    assert read_snapshots(tmp_path / "uniform")[2].bleu is None
    frozen, second = (AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name) for name in ("frozen", "second_seed"))
    set_seed(43)
    drawn = dict(AutoModelForSeq2SeqLM.from_config(second.config).named_parameters())
    own, other = (dict(model.named_parameters()) for model in (frozen, second))
    assert [name for name in drawn if not torch.equal(drawn[name], own[name])] == ["attention.weight.weight"]
    assert [name for name in drawn if torch.equal(drawn[name], other[name])] == []


def test_a_linear_translator_has_a_column_for_the_best_attention(tmp_path, run, corpus):
    words = [*corpus, "--vocab_size", "70", "--max_steps", "2", "--max_valid", "4", "--paper", "Multi30k"]
    out = run(tmp_path, *words, "--set", "embedding_size=8", "hidden_size=8", "output=linear")
    lines = [line.split() for line in out.splitlines() if line]
    head, ours, margins, theirs = lines[next(n for n, line in enumerate(lines) if line[0] == "A(α,βuf)") :][:4]
    assert margins[0] == "±"
    assert (head[-1], theirs[:2], theirs[-1]) == ("A(αopt,β)", ["table", "5"], "53")
    end = read_snapshots(tmp_path / "standard")[2]
    alpha = end.scores["alpha_opt"]
    torch.testing.assert_close(alpha.sum(-1), torch.ones(len(alpha)))
    expected = 100 * agreement(alpha, end.scores["beta"], end.kept).mean().item()
    assert float(ours[-1]) == pytest.approx(expected, abs=0.06)
    row = next(csv.DictReader((tmp_path / "row.csv").open()))
    assert float(row["A(alpha_opt,beta)"]) == pytest.approx(expected)
    assert "alpha_opt" not in read_snapshots(tmp_path / "second_seed")[2].scores


def test_bleu_of_a_translator_that_copies_its_references(tmp_path):
    task = object.__new__(Translation)
    pairs = made_up_pairs(60)
    train_marian_tokenizer((side for pair in pairs for side in pair), tmp_path, 70, "en", "de", 30)
    task.tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    pairs = pairs[50:]
    encoded = task.tokenizer([x for x, _ in pairs], text_target=[y for _, y in pairs])
    task.valid = [{"input_ids": x, "labels": y} for x, y in zip(encoded["input_ids"], encoded["labels"], strict=True)]
    task.fields, task.max_length, task.valid_tokens = {"pad_token_id": task.tokenizer.pad_token_id}, 30, 100
    answers = {tuple(example["input_ids"]): example["labels"] for example in task.valid}

    class Copier(torch.nn.Linear):
        def generate(self, ids, attention_mask, **_):
            return [answers[tuple(row[kept.bool()].tolist())] for row, kept in zip(ids, attention_mask, strict=True)]

    assert task.bleu(Copier(1, 1), "valid", 5) == pytest.approx(1)
    for example in task.valid[:5]:
        answers[tuple(example["input_ids"])] = [task.tokenizer.eos_token_id]
    assert task.bleu(Copier(1, 1), "valid", 5) == 0
    assert task.bleu(Copier(1, 1), "valid", 10) > 0


def test_classification_of_a_set_with_fields_word_vectors_and_logistic_regression(tmp_path, run):
    for split, number in (("train", 40), ("valid", 10)):
        texts = [{"words": f"{'good' if i % 2 else 'bad'}, film {i % 3}.", "class": i % 2} for i in range(number)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    (tmp_path / "vectors.txt").write_text("good 1 2 3 4 5 6 7 8\nunseen 1 2 3 4 5 6 7 8\nfilm 0 0 0 0 0 0 0 1e-1\n")
    words = ["--task", "classification", "--max_steps", "2", "--text_field", "words", "--label_field", "class"]
    words += ["--train", str(tmp_path / "train.jsonl"), "--valid", str(tmp_path / "valid.jsonl"), "--paper", "SST"]
    words += ["--punctuation", "separate", "--embeddings", str(tmp_path / "vectors.txt"), "--learning_rate", "0"]
    out = run(tmp_path / "out", *words)
    assert "embeddings: 2 of 8 words are in" in out  # bad good film , . 0 1 2
    assert "A(βuf,βlog)" in out
    ids = {word: number for number, word in enumerate(sorted([*"012,.", "bad", "film", "good"]), 2)}
    table = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "standard").embed_tokens.weight
    assert table[ids["good"]].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert table[ids["film"]].tolist() == pytest.approx([0] * 7 + [0.1])
    assert table[ids["bad"]].abs().max() <= 0.1  # as it was drawn
    penalties = list(csv.DictReader((tmp_path / "out" / "logistic" / "penalties.csv").open()))
    assert len(penalties) == 10
    assert float(penalties[-1]["accuracy"]) == 1
    logistic = read_snapshots(tmp_path / "out" / "logistic")[0]
    assert logistic.performance == 1
    assert logistic.scores["beta"].argmax(-1).unique().tolist() == [0]  # good and bad are the first words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--performance", "chrf"], "--performance: 'chrf' is not one of accuracy, bleu"),
        (["--on", "test"], "--on: 'test' is not one of valid, train"),
        (
            ["--task", "classification", "--performance", "bleu"],
            "--performance: 'bleu' is supported only for --task translation; use accuracy",
        ),
        (
            ["--task", "classification", "--dataset", "imdb"],
            "--train, --valid: are missing; with --dataset, give the names of two splits",
        ),
        (["--embeddings", "glove.txt"], "--embeddings: 'glove.txt' are word vectors, but translators read"),
        (["--task", "parsing"], "--task: 'parsing' is not one of translation, classification"),
        ([], r"--train: \[\] does not name the data; give two text files or one JSONL file"),
        (
            ["--task", "classification", "--train", "a.tsv"],
            r"--train, --valid: \(\['a.tsv'\], \[\]\) must each be one file or split, or none",
        ),
    ],
)
def test_wrong_arguments_are_named(options, message, tmp_path, run):
    with pytest.raises(InputError, match=message):
        run(tmp_path, *options)


def test_every_argument_has_a_help_text():
    for argument in fields(study_attention_learning.StudyArguments):
        assert argument.metadata["help"].endswith("."), argument.name
