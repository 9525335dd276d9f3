"""Files that are broken, and places that cannot be written: one line, exit code 2, before the work.

Also for cli/paths.py.
"""

import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hf_nmt_interp.cli.shards import WRITERS
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.conllu import read_conllu
from hf_nmt_interp.text.corpus import read_jsonl
from hf_nmt_interp.text.pharaoh import read_gold

# ----------------------------------------------------------------------------------------------------------- files
BAD_FILES = {
    "NUL": (b"A dog.\nA \0 cat\n", "line 2: NUL character; is this a text file?"),
    "invalid UTF-8": (b"A dog.\nA \xff cat\n", "line 2: byte 3 (0xff) is not UTF-8; convert the file first"),
    "surrogate": (b"A dog.\nA \xed\xa0\x80\n", "line 2: byte 3 (0xed) is not UTF-8; convert the file first"),
    "UTF-16": ("A dog.\n".encode("utf-16"), "line 1: byte 1 (0xff) is not UTF-8; convert the file first"),
    "empty": (b"", "no sentences: give them as arguments, in a file with --input, or - for stdin"),
    "long": (b"A dog.\n" + b"word " * 10_000, "40001 tokens, but the model has 64 positions"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize("verb", ["translate", "contributions", "heads", "faithfulness", "detached"])
def test_bad_files(run, model_folder, tmp_path, verb, kind):
    content, message = BAD_FILES[kind]
    path = tmp_path / "source"
    path.write_bytes(content)
    code, out, err = run(verb, "--model", model_folder, "--input", path)
    assert (code, out) == (2, "")
    assert message in err
    assert err.strip().count("\n") == 0


@pytest.mark.parametrize("kind", BAD_FILES)
def test_stdin_is_read_as_files_are(run, model_folder, monkeypatch, kind):
    content, message = BAD_FILES[kind]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="latin-1"))
    code, out, err = run("translate", "--model", model_folder, "-")
    assert (code, out) == (2, "")
    assert message in err
    assert ("stdin, line" in err) == ("line" in message)


@pytest.mark.parametrize("verb", ["attribute", "contributions", "heads"])
def test_a_bad_target_is_found_before_the_work(run, model_folder, tmp_path, verb):
    (tmp_path / "source").write_text("A dog.\n" * 8)
    (tmp_path / "target").write_text("Ein Hund.\n" * 5 + "Hund " * 70 + "\n" + "Ein Hund.\n" * 2)
    files = "--input", tmp_path / "source", "--target-file", tmp_path / "target"
    code, out, err = run(verb, "--model", model_folder, "--batch-size", 1, *files)
    assert (code, out) == (2, "")
    assert re.search(r"error: sentence 6, target: \d+ tokens, but the model has 64 positions; split", err)
    code, _, err = run("attribute", "--model", model_folder, "A dog.", "A cat.", "--target", "x", "--target", "\udcff")
    assert (code, "--target 2: '\\udcff' has a lone surrogate at 0" in err) == (2, True)


def test_positions_of_an_encoder_and_a_decoder(run, translator_of, tmp_path):
    """They stand in the configurations of the two."""
    model, tokenizer = translator_of("bert")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    code, out, err = run("translate", "--model", tmp_path, "A dog.", "word " * 100)
    assert (code, out) == (2, "")
    assert re.search(r"error: sentence 2: \d+ tokens, but the model has 64 positions; split the sentence", err)
    code, _, err = run("attribute", "--model", tmp_path, "A dog.", "--target", "word " * 100)
    assert (code, "error: sentence 1, target: " in err) == (2, True)


def test_a_surrogate_among_the_arguments(run, model_folder):
    code, _, err = run("translate", "--model", model_folder, "A dog.", "A \udcff cat")
    assert code == 2
    assert "sentence 2: 'A \\udcff cat' has a lone surrogate at 2; read it as UTF-8" in err
    code, _, err = run("demo", "--model", model_folder, "A \udcff cat")
    assert (code, "sentence 1: 'A \\udcff cat' has a lone surrogate at 2; read it as UTF-8" in err) == (2, True)


def test_stdin_is_one_file(run, model_folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"A dog.\nEin Hund.\n")))
    code, _, err = run("align", "--model", model_folder, "-", "-")
    assert (code, "-: only one of the files can be stdin; give the name of the other" in err) == (2, True)


def test_gold_links_out_of_range(run, tmp_path):
    for name, text in {
        "gold": "0-0 1-1\n0-0 2p9\n",
        "links": "0-0\n0-0\n",
        "s": "a b\na b c\n",
        "t": "x y\nx\n",
    }.items():
        (tmp_path / name).write_text(text)
    gold, links, s, t = (tmp_path / name for name in ("gold", "links", "s", "t"))
    code, _, err = run("aer", "--text", s, t, gold, links)
    assert code == 2
    assert "gold, line 2: link 2-9 is out of range; the pair has 3 and 1 words, counted from 0" in err
    assert run("aer", "--text", s, t, links, links).code == 0
    with pytest.raises(InputError, match="links: 2 lines, but there are 1 sentence pairs; give one per pair"):
        read_gold(links, pairs=[("a", "x")])
    models = ["--model", "demo:en-de", "--reverse-model", "demo:de-en"]
    code, _, err = run("alignment-table", tmp_path / "out", *models, "--gold", gold, s, t)
    assert code == 2
    assert "gold, line 2: link 2-9 is out of range" in err
    for path in (gold, s, t):
        path.write_text("")
    code, _, err = run("aer", gold, gold)
    assert code == 2
    assert "gold: no lines; give a line of links for each sentence pair" in err
    for text in ("", "\n"):
        for path in (gold, s, t):
            path.write_text(text)
        for verb in (["alignment-table", tmp_path / "out", *models], ["best-attention"]):
            code, _, err = run(*verb, "--gold", gold, s, t)
            assert (code, "gold has no links; give a line of them for each sentence pair" in err) == (2, True)


def test_numbers_with_too_many_digits(run, model_folder, tmp_path):
    """Python itself reads no more than 4,300 of them, and no nesting of any depth."""
    many = "1" * 5000
    (tmp_path / "gold").write_text(f"0-0\n{many}-0\n")
    (tmp_path / "trees").write_text(word(1, many))
    (tmp_path / "tokens").write_text(word(f"{many}-{many}", 0))
    (tmp_path / "pairs").write_text(f"[{many}]\n")
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"gold, line 2: '1{40}' is not a link like 3-4"):
        read_gold(tmp_path / "gold")
    for name, message in (("trees", "HEAD '1{40}' is not a number"), ("tokens", "ID '1{39,40}-?' instead of word 1")):
        with pytest.raises(InputError, match=f"{name}, line 1: {message}"):
            list(read_conllu(tmp_path / name))
    for name, message in (("pairs", "limit"), ("deep", "recursion")):
        with pytest.raises(InputError, match=rf"{name}, line 1: not JSON \(.*{message}"):
            list(read_jsonl(tmp_path / name))
    for value in (many, "[" * 100_000):
        code, _, err = run(
            "attribute", "--model", model_folder, "--method", "attention", "--set", f"head={value}", "x"
        )
        assert (code, len(err) < 200) == (2, True)
        assert "--set: head=" in err
        code, _, err = run("attribute", "--model", model_folder, "--method", f"attention:layer={value}", "x")
        assert (code, len(err) < 200) == (2, True)
    for flag in ("--limit", "--batch-size", "--beams"):
        code, _, err = run("translate", flag, 10**30, "x")
        assert (code, f"{flag}: '1{'0' * 30}' is not an integer from 1 to 999999999" in err) == (2, True)


def word(number, head):
    return f"{number}\tA\t_\tX\t_\t_\t{head}\tdep\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\tA\n", "line 1: 2 columns, not 10 separated by tabs"),
        (word(1, "z"), "line 1: HEAD 'z' is not a number"),
        (word(1, 9), "line 1: HEAD 9 of word 1 must be another word of the sentence"),
        (word(2, 0), "line 1: ID '2' instead of word 1"),
        (word(1, 2) + word(2, 1), "line 1: the heads of word 1 form a cycle; the file must have trees"),
        (word(1, 0) + word(2, 3) + word(3, 2), "line 2: the heads of word 2 form a cycle"),
        (word(1, 0).replace("A", "\0"), "line 1: NUL character"),
    ],
)
def test_malformed_trees(tmp_path, text, message):
    path = tmp_path / "trees.conllu"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_conllu(path))


# ---------------------------------------------------------------------------------------------------------- output
@pytest.mark.parametrize(
    ("verb", "flag", "path", "message"),
    [
        ("translate", "--output", "none/x", "--output: {}: No such file or directory"),
        ("heads", "--output", ".", "--output: {}: Is a directory"),
        ("heads", "--figure", "none/x.png", "--figure: {}: No such file or directory"),
        ("calibration", "--figures", "file/x", "--figures: {}: Not a directory"),
        ("contributions", "--figure", "file/x.png", "--figure: {}: Not a directory"),
        ("contributions", "--figure", "x.docx", "--figure: {}: its name must end in .svg, .pdf or .png"),
    ],
)
def test_unwritable_places_are_refused_before_the_work(run, tmp_path, verb, flag, path, message):
    (tmp_path / "file").touch()
    code, out, err = run(verb, "--model", tmp_path / "never-loaded", flag, tmp_path / path, "A dog.")
    assert (code, out) == (2, "")
    assert message.format(tmp_path / path) in err


def test_an_output_is_no_file_of_another_argument(run, model_folder, tmp_path, monkeypatch):
    texts = {name: f"A {name} dog.\n" * 9 for name in ("a", "b")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    a, b, new = tmp_path / "a", tmp_path / "b", tmp_path / "new"
    for verb, *arguments in (
        ("align", a, b, "--output", a),
        ("align", a, b, "--output", tmp_path / "link"),
        ("align", a, "--output", new, "--translations", new),
        ("translate", "--input", a, "--output", a),
        ("aer", a, b, "--output", b),
    ):
        model = ["--model", model_folder] if verb != "aer" else []
        code, _, err = run(verb, *model, *arguments)
        path = arguments[arguments.index("--output") + 1]
        assert (code, f"--output: {path} is also used by another argument; give each its own" in err) == (2, True)
    for verb, *arguments, beside in (
        ("align", tmp_path / "old.bad", "--output", tmp_path / "old", "old.bad"),
        ("heads", "--input", tmp_path / "old.csv", "--figure", tmp_path / "old.svg", "old.csv"),
    ):
        code, _, err = run(verb, "--model", model_folder, *arguments)
        message = f"{arguments[-2]}: {tmp_path / beside} is also used by another argument; give each its own"
        assert (code, message in err) == (2, True)
    assert {name: (tmp_path / name).read_text() for name in texts} == texts
    assert not new.exists()
    plain = "align", "--model", model_folder, "--method", "attention", a
    assert run(*plain, "--output", "/dev/null", "--translations", "/dev/null").code == 0
    monkeypatch.chdir(tmp_path)
    assert run(*plain, "--output", "attention").code == 0  # the method's name is not a file


def test_a_name_that_is_too_long(run, tmp_path):
    code, _, err = run("translate", "--model", tmp_path / "never-loaded", "--output", tmp_path / ("x" * 300), "A dog.")
    assert (code, err.endswith(": File name too long\n")) == (2, True)


@pytest.mark.parametrize(
    ("verb", "flag", "path"),
    [
        ("calibration", "--figures", "locked"),
        ("calibration", "--figures", "locked/new"),
        ("translate", "--output", "locked/old"),
        ("attribute", "--shards", "locked"),
    ],
)
def test_folders_without_permission_are_refused_before_the_work(run, tmp_path, monkeypatch, verb, flag, path):
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "old").write_text("old")
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != tmp_path / "locked")  # root may do all
    code, out, err = run(verb, "--model", tmp_path / "never-loaded", flag, tmp_path / path)
    assert (code, out) == (2, "")
    assert err == f"hf-nmt-interp {verb}: error: {flag}: {tmp_path / path}: Permission denied\n"


def test_a_place_that_lost_its_permission(run, monkeypatch):
    def fail(args):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "figures/jsd.svg")

    monkeypatch.setattr("hf_nmt_interp.cli.verbs.env.run", fail)
    assert run("env") == (2, "", "hf-nmt-interp env: error: figures/jsd.svg: Permission denied\n")
    with pytest.raises(PermissionError):
        run("env", "--traceback")


def test_no_file_is_named_by_data(run, model_folder, tmp_path):
    """Texts, fields and labels that look like paths: what is written stays where it was asked for."""
    (tmp_path / "home").mkdir()
    texts = ["../../evil", "/tmp/evil", "..", "a/../../b"]
    rows = [{"../en": text, "id": "../evil", "file_name": "../evil"} for text in texts]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in texts))
    home = tmp_path / "home"
    for verb in ("attribute", "contributions", "heads", "align"):
        place = "--shards", home / verb, "--dataset", data, "--fields", "../en", "--model", model_folder
        assert run(verb, *place).code == 0
        assert run("merge", home / verb, "--output", home / f"{verb}.json").code == 0
    label = f"..evil={model_folder}"
    assert run("attribute", "--model", label, "--input", tmp_path / "in", "--output", home / "page.html").code == 0
    files = "--input", tmp_path / "in", "--target-file", tmp_path / "in"
    study = "--compare", label, "--figure", home / "study.svg", "--output", home / "study.json"
    assert run("contributions", *files, *study).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "home", "in"]
    assert {path.name.partition(".")[0] for path in home.rglob("*") if path.is_file()} == {
        "run", "total", "README", "000000", "attribute", "contributions", "heads", "align", "page", "study",
    }  # fmt: skip


def test_pruning_into_a_file(run, gated_folder, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = run("prune", "--model", gated_folder, "--output", tmp_path / "file" / "x")
    assert (code, err.endswith("Not a directory\n")) == (2, True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("verb", ["translate", "attribute"])
def test_full_disk(run, model_folder, verb):
    code, _, err = run(verb, "--model", model_folder, "--output", "/dev/full", "A dog.")
    assert (code, err) == (2, f"hf-nmt-interp {verb}: error: /dev/full: No space left on device\n")


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("shard_format", WRITERS)
def test_full_disk_in_the_second_shard(run, model_folder, tmp_path, monkeypatch, shard_format):
    (tmp_path / "in").write_text("".join(f"A dog {n}.\n" for n in range(9)))
    command = ["attribute", "--model", model_folder, "--method", "attention", "--input", tmp_path / "in"]
    command += ["--shard-size", 3, "--shard-format", shard_format, "--shards"]
    assert run(*command, tmp_path / "whole").code == 0
    writer = WRITERS[shard_format]
    before = writer.write

    def write(self, rows):
        is_second = rows[0].get("line") == 4
        before(self, rows[:2] if is_second else rows)
        if is_second:
            no_space()

    with monkeypatch.context() as patched:
        patched.setattr(writer, "write", write)
        code, _, err = run(*command, tmp_path / "run")
    second = tmp_path / "run" / "shards" / f"000001.{shard_format}"
    assert (code, err) == (2, f"hf-nmt-interp attribute: error: {second}: No space left on device\n")
    assert [path.name for path in (tmp_path / "run" / "shards").glob("[0-9]*")] == [f"000000.{shard_format}"]
    assert run(*command, tmp_path / "run").code == 0
    found, expected = ({p.name: p.read_bytes() for p in (tmp_path / f).rglob("0*")} for f in ("run", "whole"))
    assert found == expected
    assert len(found) == 6  # with their checksums


def test_full_disk_behind_output(run, model_folder, tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    command = "translate", "--model", model_folder, "--output", out, "A dog.", "A cat."
    monkeypatch.setattr("hf_nmt_interp.cli.output.write_json", lambda rows, file: (file.write("{"), no_space()))
    for before in ([], [out]):
        assert run(*command) == (2, "", f"hf-nmt-interp translate: error: {out}: No space left on device\n")
        assert list(tmp_path.iterdir()) == before
        out.write_text("old")
    assert out.read_text() == "old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_behind_stdout(tmp_path):
    (tmp_path / "links").write_text("0-0\n")
    command = [sys.executable, "-m", "hf_nmt_interp", "aer", str(tmp_path / "links"), str(tmp_path / "links")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "hf-nmt-interp aer: error: cannot write: No space left on device\n"
