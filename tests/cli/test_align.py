"""The verb `align`. Also for cli/verbs/align.py."""

import io
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from threading import Thread
from types import SimpleNamespace

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.alignment import extract_links, joint_links, joint_scores
from hf_nmt_interp.analysis.own_attention import choose_attention
from hf_nmt_interp.analysis.symmetrization import flip
from hf_nmt_interp.cli import sharded_run
from hf_nmt_interp.cli.loading import load
from hf_nmt_interp.cli.shards import ShardFolder
from hf_nmt_interp.cli.verbs import align as verb
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.text.pharaoh import format_links, read_links
from tests.shard_files import bytes_of
from tests.tiny_tokenizers import ENGLISH, GERMAN


@pytest.fixture
def files(short_files):
    return short_files


@pytest.fixture
def align(run, model_folder):
    """Run `align` by attention with the tiny model."""
    return lambda *arguments: run("align", "--model", model_folder, "--method", "attention", *arguments)


@pytest.fixture
def cut_off(monkeypatch):
    """A context in which `align` stops after as many lines (None: at the end), as if it was interrupted."""

    @contextmanager
    def stopping(lines):
        seen = []

        def rows(self, batch):
            if len(seen) == lines:
                raise KeyboardInterrupt
            seen.extend(batch)
            return before(self, batch)

        before = verb._Aligner.rows
        with monkeypatch.context() as patch:
            patch.setattr(verb._Aligner, "rows", rows)
            yield seen

    return stopping


def test_the_default_method(run, model_folder, files) -> None:
    start = "align", "--model", model_folder
    model, tokenizer = load(str(model_folder))
    words = [[line.split() for line in lines] for lines in (ENGLISH, GERMAN)]
    choice = choose_attention(model, Pairs.force(model, tokenizer, *words))
    method = "attention:" + ",".join(f"{name}={json.dumps(value)}" for name, value in choice.settings.items())
    assert run(*start, *files).out == run(*start, "--method", method, *files).out
    assert "--set: needs --method, the method it is for" in run(*start, *files, "--set", "layer=0").err


def test_the_default_of_a_pipe_reads_it_once(run, model_folder, files, tmp_path) -> None:
    start = "align", "--model", model_folder
    expected = run(*start, *files).out
    pipes = [tmp_path / name for name in ("pipe.en", "pipe.de")]
    threads = []
    for pipe, file in zip(pipes, files, strict=True):
        os.mkfifo(pipe)
        threads.append(Thread(target=pipe.write_text, args=(file.read_text(encoding="utf-8"),), daemon=True))
        threads[-1].start()
    assert run(*start, *pipes).out == expected


def test_the_default_skips_lines_that_are_refused(run, model_folder, files, tmp_path) -> None:
    source, target = (file.read_text(encoding="utf-8").splitlines() for file in files)
    source[1] = "word " * 3000
    paths = [tmp_path / name for name in ("long.en", "long.de")]
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ran = run("align", "--model", model_folder, *paths)
    assert (ran.code, ran.out.splitlines()[1]) == (0, "")
    assert all(ran.out.splitlines()[:1])


def test_a_wrong_setting_leaves_an_earlier_run(run, model_folder, files, tmp_path) -> None:
    folder = tmp_path / "out.shards"
    (folder / "shards").mkdir(parents=True)
    (folder / "run.json").write_text('{"output": "out"}')
    start = "align", "--model", model_folder, *files, "--output", tmp_path / "out"
    assert run(*start, "--method", "attention", "--set", "head=9").code == 2
    assert (folder / "run.json").exists()
    (folder / "notes.txt").write_text("mine")
    assert (
        "has a file that this command did not write, notes.txt; move it, or choose another output" in run(*start).err
    )
    assert (folder / "run.json").exists()


def pharaoh(links) -> str:
    return "".join(format_links(pairs) + "\n" for pairs in links)


def test_force_and_free_equal_the_function(align, tiny, files, tmp_path) -> None:
    expected = hni.align(*tiny, ENGLISH, GERMAN, method="attention", layer=0, extraction="mutual")
    found = align(
        *files, "--set", "layer=0", "--extraction", "mutual", "--batch-size", 1, "--output", tmp_path / "out"
    )
    assert found == (0, "", "")
    assert (tmp_path / "out").read_text() == pharaoh(expected)
    free = hni.align_words(*tiny, ENGLISH, method="attention", generate={"num_beams": 3})
    code, out, err = align(files[0], "--beams", 3, "--translations", tmp_path / "hyp")
    assert (code, err, out) == (0, "", pharaoh(a.links for a in free))
    assert (tmp_path / "hyp").read_text("utf-8") == "".join(" ".join(a.target_words) + "\n" for a in free)


def test_json_and_stdin(align, tiny, files, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(files[0].read_bytes())))
    code, out, _ = align("-", files[1], "--format", "json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    expected = hni.align_words(*tiny, ENGLISH, GERMAN, method="attention", punctuation="separate")
    assert rows[0]["source"][-1] == "."
    for row, found in zip(rows, expected, strict=True):
        assert (row["source"], row["target"]) == (found.source_words, found.target_words)
        assert {(i, j) for i, j in row["links"]} == found.links
        assert row["scores"] == pytest.approx([found.soft[j, i] for i, j in row["links"]], abs=6e-5)


def json_rows(out: str) -> list:
    return [json.loads(line) for line in out.splitlines()]


def test_words_and_punctuation_of_each_format(align, tiny, files, tmp_path) -> None:
    separate = hni.align(*tiny, ENGLISH, GERMAN, method="attention", punctuation="separate")
    options = "--words", "pieces", "--punctuation", "separate"
    assert align(*files, *options).out == pharaoh(separate) != align(*files).out
    assert align(*files, "--punctuation", "separate").out == pharaoh(separate)
    rows = json_rows(align(*files, "--format", "json", "--words", "spaces", "--punctuation", "attached").out)
    assert [row["source"] for row in rows] == [line.split() for line in ENGLISH]
    assert align(*files, "--output", tmp_path / "out.jsonl").code == 0
    assert (tmp_path / "out.jsonl").read_text("utf-8") == align(*files, "--format", "json").out
    free = hni.align_words(*tiny, ENGLISH, method="attention", punctuation="separate")
    out = align(files[0], "--format", "json", "--translations", tmp_path / "text").out
    assert [row["target"] for row in json_rows(out)] == [found.target_words for found in free]
    assert (tmp_path / "text").read_text("utf-8").splitlines() == [found.target_text for found in free]
    assert "argument --words: invalid choice: 'mecab'" in align(*files, "--words", "mecab").err


def test_words_of_shards(align, run, files, tmp_path, cut_off) -> None:
    options = "--words", "pieces", "--punctuation", "separate"
    expected = {options: align(*files, "--format", "json").out}
    expected[()] = align(*files, "--format", "json", "--words", "spaces", "--punctuation", "attached").out
    for n, chosen in enumerate(expected):
        assert align(*files, *chosen, "--shards", tmp_path / str(n)).code == 0
        merged = json_rows(run("merge", tmp_path / str(n), "--format", "json").out)
        shown = [{name: row[name] for name in ("source", "target", "links", "scores")} for row in merged]
        assert shown == json_rows(expected[chosen])
    with cut_off(2):
        assert align(*files, "--output", tmp_path / "out", "--batch-size", 1, "--shard-size", 1).code == 130
    err = align(*files, "--output", tmp_path / "out", "--batch-size", 1, "--shard-size", 1, "--resume", *options).err
    assert "out.shards was started with punctuation 'attached', not 'separate'; give the same" in err


def test_the_words_of_a_segmenter(align, tiny, files, model_folder, monkeypatch) -> None:
    def halves(text: str) -> list[str]:
        return [half for word in text.split() for half in (word[:3], word[3:]) if half]

    pairs = ENGLISH[:4], GERMAN[:4]
    for file, lines in zip(files, pairs, strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    both = "--words", "jieba", "--reverse-model", model_folder, "--symmetrize", "union", "--format", "json"
    monkeypatch.setitem(sys.modules, "jieba", None)
    assert "words: 'jieba' is not installed; pip install -c constraints.txt" in align(*files, *both).err
    monkeypatch.setitem(sys.modules, "jieba", SimpleNamespace(lcut=halves, setLogLevel=lambda level: None))
    options = {"method": "attention", "words": halves, "punctuation": "separate"}
    expected = hni.align_words(*tiny, *pairs, **options)
    rows = json_rows(align(*files, *both).out)
    assert sum(len(row["source"]) for row in rows) > sum(len(line.split()) for line in pairs[0])
    for row, found in zip(rows, expected, strict=True):
        assert (row["source"], row["target"]) == (found.source_words, found.target_words)  # of both directions
        assert {(i, j) for i, j in row["links"]} >= found.links


def test_least_leaves_out_links_with_small_shares(align, tiny, files, model_folder) -> None:
    pairs = ENGLISH[:4], GERMAN[:4]
    for file, lines in zip(files, pairs, strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = hni.align_words(*tiny, *pairs, method="attention")  # as in Pharaoh lines, marks belong to words
    least = sorted(a.soft[j, i] for a in found for i, j in a.links)[4]
    kept = [{(i, j) for i, j in a.links if a.soft[j, i] >= least} for a in found]
    assert [set(a.links) for a in found] != kept
    assert align(*files, "--least", least).out == pharaoh(kept)
    assert "least: 3.0 must be from 0 to 1" in align(*files, "--least", 3).err
    sides = pairs, pairs[::-1]
    found, other = (hni.align_words(*tiny, *side, method="attention", punctuation="separate") for side in sides)
    out = align(*files, "--reverse-model", model_folder, "--symmetrize", "union", "--format", "json").out
    for line, a, b in zip(out.splitlines(), found, other, strict=True):
        row = json.loads(line)
        assert {(i, j) for i, j in row["links"]} == a.links | flip(b.links)
        shares = [(a.soft[j, i] * b.soft[i, j]) ** 0.5 for i, j in row["links"]]
        assert row["scores"] == pytest.approx(shares, abs=6e-5)


def test_two_directions(align, tiny, files, model_folder) -> None:
    pairs = ENGLISH[:4], GERMAN[:4]
    for file, lines in zip(files, pairs, strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    forward = hni.align(*tiny, *pairs, method="attention")
    backward = [{(i, j) for j, i in links} for links in hni.align(*tiny, *pairs[::-1], method="attention")]
    for name in (None, "intersection", "union"):
        chosen = ["--symmetrize", name] if name else []
        code, out, _ = align(*files, "--reverse-model", model_folder, *chosen)
        assert (code, out) == (0, pharaoh(hni.symmetrize(forward, backward, name or "grow-diag-final")))
    sides = [hni.align_words(*tiny, *texts, method="attention") for texts in (pairs, pairs[::-1])]
    joint = [joint_scores(a.scores, b.scores) for a, b in zip(*sides, strict=True)]
    agreed = [extract_links(scores) & flip(extract_links(scores.T)) for scores in joint]
    code, out, _ = align(*files, "--reverse-model", model_folder, "--joint", "--symmetrize", "intersection")
    assert (code, out) == (0, pharaoh(agreed))
    assert "--joint: needs the other direction" in align(*files, "--joint").err
    method = "attention+saliency:aggregate=li2016"
    sides = [hni.align_words(*tiny, *texts, method=method) for texts in (pairs, pairs[::-1])]
    both = [joint_links(a.scores, b.scores, least=0.3) for a, b in zip(*sides, strict=True)]
    both_ways = "--reverse-model", model_folder, "--joint", "--least"
    code, out, _ = align(*files, "--method", method, *both_ways, 0.3)
    assert (code, out) == (0, pharaoh(both))
    assert "least: 3.0 must be from 0 to 1" in align(*files, *both_ways, 3).err
    assert "--set: with several methods, write each" in align(*files, "--method", method, "--set", "layer=0").err
    assert "--method: 'oracle' is not one of" in align(*files, "--method", "attention+oracle").err
    assert "--method: '' is not one of" in align(*files, "--method", "attention+").err
    assert "layer: 'x' is not one of mean" in align(*files, "--method", "saliency+attention:layer=x").err
    assert "'lrp' has no setting 'sigma'" in align(*files, "--method", "attention+lrp:sigma=1").err


def test_a_line_for_each_line_whatever_it_is(align, tiny, tmp_path) -> None:
    long = b"shells " * 70
    lines = [
        b"A dog.",
        b"",
        b" \t ",
        b"gr\xfc\xdfe",
        b"nul \0",
        long,
        b"no\xc2\xa0break here\r",
        b"\xe2\x80\xa8 x",
        b"last",
    ]
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_bytes(b"\n".join(lines))  # without a line break at the end
    target.write_bytes(b"\n".join([b"Ein Hund ."] * len(lines)))
    for size in (1, 32):
        code, out, err = align(source, target, "--batch-size", size)
        assert code == 0
        rows = out.split("\n")[:-1]
        assert len(rows) == len(lines)
        assert [n for n, row in enumerate(rows) if not row] == [1, 2, 3, 4, 5]
        messages = err.splitlines()
        assert [message.split(":")[1].split("line ")[1] for message in messages] == ["4", "5", "6"]
        assert "0xfc" in messages[0]
        assert "positions" in messages[2]
        assert all(message.endswith("; wrote an empty line") for message in messages)
    words = ["no\xa0break", "here"], ["Ein", "Hund", "."]
    assert rows[6] == format_links(hni.align(*tiny, [words[0]], [words[1]], method="attention")[0])
    target.write_bytes(b"\n" * len(lines))
    rows = align(source, target, "--format", "json").out.split("\n")
    assert [json.loads(rows[n])["source"] for n in (0, 6)] == [["A", "dog", "."], ["no", "break", "here"]]
    code, out, err = align(source, "--translations", tmp_path / "hyp")
    assert (code, out.count("\n"), (tmp_path / "hyp").read_bytes().count(b"\n")) == (0, len(lines), len(lines))
    assert err.count("wrote an empty line") == 3


def test_files_of_different_length_are_aligned_and_refused(align, files, tmp_path) -> None:
    short = tmp_path / "short"
    short.write_text("".join(f"{line}\n" for line in GERMAN[:5]), encoding="utf-8")
    code, out, err = align(files[0], short, "--batch-size", 1)
    assert code == 2
    assert [bool(row) for row in out.split("\n")] == [True] * 5 + [False] * 4
    assert err == (
        f"hf-nmt-interp align: error: {short}, line 6: missing; the files must have the same number of lines; "
        "wrote empty lines for the rest\n"
    )


def read_bad(output):
    return [json.loads(line) for line in Path(f"{output}.bad").read_text(encoding="utf-8").split("\n")[:-1]]


def test_refused_lines_are_listed_beside_the_output(align, cut_off, tmp_path) -> None:
    source, output = tmp_path / "s", tmp_path / "out"
    lines = [f"line {n}".encode() for n in range(1, 41)]
    for n in (2, 9, 20, 21, 22, 33, 40):
        lines[n - 1] = b"bad \0"
    source.write_bytes(b"\n".join(lines) + b"\n")
    run = source, "--batch-size", 1, "--output", output, "--shard-size", 8
    code, out, err = align(*run)
    assert (code, out) == (0, "")
    bad, links = read_bad(output), output.read_bytes()
    assert [row["line"] for row in bad] == [2, 9, 20, 21, 22, 33, 40]
    assert all("NUL" in row["reason"] for row in bad)
    assert [n for n, line in enumerate(links.split(b"\n")[:-1], 1) if not line] == [2, 9, 20, 21, 22, 33, 40]
    assert err.count("wrote an empty line") == 5
    assert err.endswith(f"7 lines were skipped, see {output}.bad\n")

    with cut_off(18):
        assert align(*run).code == 130
    assert len(list(Path(f"{output}.shards/bad").iterdir())) == 2
    assert align(*run, "--resume").code == 0
    assert (read_bad(output), output.read_bytes()) == (bad, links)

    code, _, err = align(*run, "--strict")
    assert (code, "line 2" in err, err.endswith("(--strict)\n")) == (2, True, True)
    source.write_text("all well\n")
    assert align(*run) == (0, "", "")
    assert not Path(f"{output}.bad").exists()
    source.write_bytes(b"bad \0\n")
    assert align(source, "--output", "/dev/null").code == 0
    assert not Path("/dev/null.bad").exists()


def test_a_folder_where_the_list_should_be(align, files, tmp_path) -> None:
    (tmp_path / "out.bad").mkdir()
    code, _, err = align(*files, "--output", tmp_path / "out")
    assert (code, err.endswith(": Is a directory\n")) == (2, True)


def test_lines_that_one_file_does_not_have_are_listed(align, files, tmp_path) -> None:
    short, output = tmp_path / "short", tmp_path / "out"
    short.write_text("".join(f"{line}\n" for line in GERMAN[:6]), encoding="utf-8")
    assert align(files[0], short, "--output", output).code == 2
    assert [row["line"] for row in read_bad(output)] == [7, 8]
    code, _, err = align(files[0], short, "--output", output, "--strict")
    assert (code, err.endswith("must have the same number of lines (--strict)\n")) == (2, True)


@pytest.mark.parametrize("done", [0, 2, 3, 7])
def test_resume_continues_from_complete_shards(align, files, tmp_path, done, cut_off) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    part.mkdir()

    def run(folder, *more):
        places = "--output", folder / "links", "--translations", folder / "text"
        return align(files[0], "--batch-size", 1, "--shard-size", 3, *places, *more)

    assert run(whole) == (0, "", "")
    (part / "links").write_text("of an earlier run\n")
    with cut_off(done):
        assert run(part).code == 130
    assert (part / "links").read_text() == "of an earlier run\n"
    assert len(list((part / "links.shards").glob("shards/[0-9]*"))) == done // 3
    with cut_off(None) as seen:
        assert run(part, "--resume") == (0, "", "")
    assert len(seen) == len(ENGLISH) - done // 3 * 3
    assert bytes_of(part) == bytes_of(whole)
    assert sorted(path.name for path in part.iterdir()) == ["links", "text"]


def test_another_run_is_not_resumed_but_can_be_started_over(align, files, tmp_path, cut_off) -> None:
    out = tmp_path / "out"
    run = "--output", out, "--batch-size", 1, "--shard-size", 3
    with cut_off(4):
        assert align(*files, *run).code == 130
    message = f"--output: {out}.shards was started with extraction 'argmax', not 'mutual'; give the same arguments"
    assert message in (err := align(*files, *run, "--extraction", "mutual", "--resume").err)
    assert err.endswith("to resume, or leave --resume out to start over\n")
    files[0].write_text(files[0].read_text() + "One more.\n")
    files[1].write_text(files[1].read_text() + "Noch einer.\n")
    assert f"{out}.shards was started with sha256 of source '" in align(*files, *run, "--resume").err
    with cut_off(None) as seen:
        assert align(*files, *run, "--extraction", "mutual") == (0, "", "")
    assert len(seen) == len(ENGLISH) + 1
    assert not Path(f"{out}.shards").exists()
    assert out.read_text() == align(*files, "--batch-size", 1, "--extraction", "mutual").out


def test_the_join_is_done_again_after_a_kill(align, files, tmp_path, cut_off, monkeypatch) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(ShardFolder, "join_refused", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        ran = align(*files, "--output", out)
    kept = f"complete parts are kept in {out}.shards, run the same command with --resume to continue"
    assert (ran.code, ran.err) == (130, f"hf-nmt-interp align: interrupted; {kept}\n")
    links = out.read_bytes()
    out.unlink()
    left, other = tmp_path / ".out.0a1b2c3d.part", tmp_path / "out.part"
    for path in (left, other):
        path.write_text("x")
    with cut_off(None) as seen:
        assert align(*files, "--output", out, "--resume").code == 0
    assert not seen  # no line is aligned twice
    assert (left.exists(), other.read_text()) == (False, "x")
    assert (out.read_bytes(), Path(f"{out}.shards").exists()) == (links, False)


def test_folders_of_others_are_not_removed(align, files, tmp_path) -> None:
    out, folder = tmp_path / "out", tmp_path / "out.shards"
    assert align(*files, "--shards", folder).code == 0
    before = bytes_of(folder)
    assert f"--output: {folder} was written by --shards; choose another name" in align(*files, "--output", out).err
    assert "was started with output None" in align(*files, "--output", out, "--resume").err
    assert bytes_of(folder) == before
    (folder / "run.json").unlink()
    message = f"--output: {folder} exists but was not created by --output; choose another folder"
    assert message in align(*files, "--output", out).err
    rmtree(folder / "shards")
    (folder / "mine.txt").write_text("mine")
    for resume in ([], ["--resume"]):
        assert message in align(*files, "--output", out, *resume).err
    assert (folder / "mine.txt").read_text() == "mine"
    assert not out.exists()


def test_wrong_settings_leave_nothing_behind(align, files, tmp_path) -> None:
    before = set(tmp_path.iterdir())
    for place in ("--output", "--shards"):
        assert align(*files, place, tmp_path / "out", "--set", "layer=9").code == 2
    assert set(tmp_path.iterdir()) == before


def test_resume_without_an_output_begins_it(align, files, tmp_path) -> None:
    out = tmp_path / "out"
    assert align(*files, "--output", out, "--resume").code == 0
    assert len(read_links(out)) == len(ENGLISH)


def test_parquet_shards_give_the_same_files(align, files, tmp_path) -> None:
    files[0].write_bytes(b"bad \0\n" + files[0].read_bytes())
    for format in ("pharaoh", "json"):
        for kind in ("jsonl", "parquet"):
            (tmp_path / kind).mkdir(exist_ok=True)
            places = "--output", tmp_path / kind / "out", "--translations", tmp_path / kind / "text"
            assert align(files[0], *places, "--format", format, "--shard-format", kind).code == 0
        assert bytes_of(tmp_path / "jsonl") == bytes_of(tmp_path / "parquet")


def test_memory_is_that_of_a_window(align, tmp_path, monkeypatch) -> None:
    source, sizes = tmp_path / "many", []
    source.write_text("\n" * 5000)
    before = sharded_run.work
    monkeypatch.setattr(
        sharded_run, "work", lambda job, window, *more: sizes.append(len(window)) or before(job, window, *more)
    )
    assert align(source, "--batch-size", 4).out == "\n" * 5000
    assert max(sizes) == 64
    assert sum(sizes) == 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "magic"], "--method: 'magic' is not one of"),
        (["--set", "layer=9"], "layer: 9 is out of range"),
        (["--extraction", "best"], "extraction: 'best' is not one of argmax"),
        (["--symmetrize", "union"], "--symmetrize: needs the other direction"),
        (["--translations", "x"], "--translations: the translations are given in TARGET"),
        (["--resume"], "--resume: needs --output"),
        (["--resume", "--output", "/dev/null"], "--resume: needs --output"),
    ],
)
def test_wrong_arguments_are_one_line(align, files, arguments, message) -> None:
    code, out, err = align(*files, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_missing_file(align, files, tmp_path) -> None:
    assert align(files[0], tmp_path / "none").err.endswith(f"{tmp_path / 'none'}: No such file or directory\n")
