"""Odd command lines: one line, or the right thing."""

import io
import os
import sys

import pytest

from hf_nmt_interp.cli import main as frame
from tests.tiny_tokenizers import ENGLISH


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["translate", "--model", "", "A dog."],
            "--model: '' does not name a model; give a folder, a Hub id or demo:en-de",
        ),
        (["attribute", "--model", "a=", "A dog."], "--model: 'a=' does not name a model; give a folder, a Hub id"),
        (
            ["translate", "--beams", "200000", "A dog."],
            "--beams: 200000 exceeds the maximum of 1,000; typical values are 1 to 10",
        ),
        (["translate", "--align", "attention", "A dog."], "--align: needs --markup; add it, or leave this"),
        (["translate", "--strict", "A dog."], "--strict: needs --markup; add it, or leave this out"),
        (["translate", "--beam", "2", "A dog."], "unrecognized arguments: --beam"),
        (["translate", "--input", "/dev/zero"], "/dev/zero, line 1: more than 10,000,000 bytes; is this a text file?"),
    ],
)
def test_odd_arguments_are_one_line(run, words, message):
    code, out, err = run(*words)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err


def test_closed_streams_are_one_line(run, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", None)
        code, _, err = run("translate", "-")
        assert (code, err) == (2, "hf-nmt-interp translate: error: -: stdin is closed; give a file\n")
    err = io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        patched.setattr(sys, "stderr", err)
        assert frame.main(["env"]) == 2
    assert err.getvalue() == "hf-nmt-interp env: error: stdout: is closed; redirect it, e.g. to /dev/null\n"


def test_no_columns_are_the_usual_ones(run, model_folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert "A dog." in run("translate", "--model", model_folder, "--format", "table", "A dog.").out


def test_a_table_whose_reader_stops_early(monkeypatch):
    """rich turns a broken pipe into an exit of its own."""
    reader, writer = os.pipe()
    os.close(reader)

    def show(args):
        from rich.console import Console

        Console(file=pipe).print("A table.")

    monkeypatch.setattr("hf_nmt_interp.cli.verbs.env.run", show)
    with open(writer, "w", buffering=1) as pipe, open(os.devnull, "w") as null:
        monkeypatch.setattr(frame.sys, "stdout", null)  # rich drops what it finds there
        assert frame.main(["env"]) == 141
        os.dup2(null.fileno(), pipe.fileno())


def test_translations_stream(run, model_folder, monkeypatch):
    """Lines are read and translated window by window."""
    taken = []

    class Lines(io.BytesIO):
        def readline(self, size=-1):
            taken.append(len(translated))
            return super().readline(size)

    translated = []
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Lines("".join(f"{line}\n" for line in ENGLISH * 3).encode())))
    from hf_nmt_interp.decoding.pairs import Pairs

    before = Pairs.translate
    monkeypatch.setattr(Pairs, "translate", lambda *args, **options: translated.append(1) or before(*args, **options))
    code, out, _ = run("translate", "--model", model_folder, "--batch-size", 1, "-")
    assert (code, out.count("\n")) == (0, 24)
    assert taken[:4] == [0] * 4
    assert taken[-1] > 3
