"""The script end to end: both architectures, going on, settings, wrong arguments."""

import json
import sys
from dataclasses import fields

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from tests.made_up_corpus import made_up_pairs, write_parallel
from trainer_scripts import train_seq2seq

PAIRS = made_up_pairs(80)
SMALL = ["--vocab_size", "70", "--max_length", "30", "--tokens_per_batch", "100", "--learning_rate", "0.01"]
SMALL += ["--logging_steps", "1", "--save_steps", "3", "--test_beams", "2", "--disable_tqdm", "True"]
SMALL += ["--report_to", "none", "--set", "embedding_size=12", "hidden_size=12", "decoder_layers=1", "dropout=0.1"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    splits = {"train": PAIRS[:60], "test": PAIRS[60:]}
    return [word for name, pairs in splits.items() for word in (f"--{name}", *write_parallel(folder, name, pairs))]


@pytest.fixture
def run(monkeypatch, corpus):
    def call(out, *more):
        monkeypatch.setattr(sys, "argv", ["train_seq2seq.py", "--output_dir", str(out), *corpus, *SMALL, *more])
        train_seq2seq.main()
        return json.loads((out / "results.json").read_text())

    return call


@pytest.mark.parametrize("architecture", ["lstm", "conv"])
def test_trains_goes_on_and_is_explained(architecture, tmp_path, run, capsys):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = run(whole, "--architecture", architecture, "--max_steps", "6", "--lr_scheduler_type", "constant")
    run(parts, "--architecture", architecture, "--max_steps", "3", "--lr_scheduler_type", "constant")
    found = run(parts, "--architecture", architecture, "--max_steps", "6", "--lr_scheduler_type", "constant")
    assert "Resuming from" in capsys.readouterr().out
    assert found["train_steps"] == 6
    for name in ("test_loss", "test_chrf", "test_bleu"):
        assert found[name] == pytest.approx(expected[name], rel=1e-5)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(whole), AutoTokenizer.from_pretrained(whole)
    assert model.config.hidden_size == 12
    assert model.config.use_cache
    links = hni.align(model, tokenizer, *PAIRS[0], method="smoothgrad", smoothgrad=2)
    assert {j for _, j in links} == set(range(len(PAIRS[0][1].split())))
    run(tmp_path / "more", "--model", str(whole), "--max_steps", "1")


def test_trains_with_input_feeding(tmp_path, run):
    settings = "embedding_size=12", "hidden_size=12", "dropout=0.1", "input_feeding=true"
    few, more = (
        run(tmp_path / n, "--architecture", "lstm", "--max_steps", n, "--set", *settings) for n in ("1", "12")
    )
    assert more["test_loss"] < few["test_loss"]
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "12").config.input_feeding


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--architecture", "gru"], "--architecture: 'gru' is not one of lstm, conv"),
        (["--set", "layers=3"], "--set: 'layers=3' is not one of the fields embedding_size, hidden_size"),
        (["--set", "hidden_size=-1"], "--set: hidden_size must be greater than zero; choose other values"),
        (["--set", "hidden_size=" + "1" * 5000], "--set: .*hidden_size"),
        (["--set", "attention=concat"], "--set: attention='concat' is not one of general, dot"),
    ],
)
def test_wrong_arguments_are_named(options, message, tmp_path, run):
    with pytest.raises(InputError, match=message):
        run(tmp_path, *options)


def test_every_argument_has_a_help_text():
    for argument in fields(train_seq2seq.ModelArguments):
        assert argument.metadata["help"].endswith("."), argument.name
