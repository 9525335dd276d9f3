"""Corpus runs: rows equal the functions', in order, whatever cut the run off and however it was split."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.cli import sharded_run
from hf_nmt_interp.cli.loading import load
from hf_nmt_interp.cli.shards import JsonLines, ShardFolder, read_rows, written
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.records import record
from hf_nmt_interp.text.pharaoh import format_links
from tests.shard_files import SOURCES, TARGETS, bytes_of, rows_of, shards_of

VERBS = ["attribute", "contributions", "heads", "align"]


@pytest.fixture(scope="module")
def tiny(model_folder):
    return load(str(model_folder))


def test_attribute_rows_are_those_of_the_function(work, run, tiny, tmp_path) -> None:
    code, out, err = work("attribute", "--tokens")
    assert (code, out, err) == (0, f"24 lines in 3 shards of {tmp_path / 'run'}\n", "")
    expected = [record(result) for result in hni.attribute(*tiny, SOURCES, TARGETS, method="attention")]
    rows = rows_of(tmp_path / "run")
    assert [row["line"] for row in rows] == list(range(1, 25))
    for row, other in zip(rows, expected, strict=True):
        assert row["target_tokens"] == other["target_tokens"]
        assert [pytest.approx(line, abs=2e-6) for line in other["source"]] == row["source"]
    assert run("merge", tmp_path / "run").out.splitlines() == [
        line for path in shards_of(tmp_path / "run") for line in path.read_text("utf-8").splitlines()
    ]


def test_align_and_free_translations(work, run, tiny, files, tmp_path) -> None:
    assert work("align").code == 0
    links = hni.align(*tiny, SOURCES, TARGETS, method="attention")
    assert run("merge", tmp_path / "run").out == "".join(format_links(found) + "\n" for found in links)
    assert work("align", files=files[:1], folder="free").code == 0
    texts = [found.target_text for found in hni.align_words(*tiny, SOURCES, method="attention")]
    assert [row["target_text"] for row in rows_of(tmp_path / "free")] == texts


def test_contributions_merge_to_the_same_means(work, run, model_folder, files, tmp_path) -> None:
    whole = run(
        "contributions", "--model", model_folder, "--method", "attention", "--input", files[0],
        "--target-file", files[1], "--format", "tsv",
    )  # fmt: skip
    assert work("contributions").code == 0
    assert run("merge", tmp_path / "run", "--format", "tsv").out == whole.out
    size = rows_of(tmp_path / "run")[0]["source_tokens"]
    some = run("merge", tmp_path / "run", "--source-tokens", size, "--format", "json").out
    assert {json.loads(line)["sentences"] for line in some.splitlines()} == {3}
    assert "no sentence is left" in run("merge", tmp_path / "run", "--source-tokens", 1).err


@pytest.mark.parametrize("relevance", [True, False])
def test_heads_merge_to_the_same_report(work, run, tiny, files, tmp_path, relevance) -> None:
    chosen = [] if relevance else ["--relevance-sentences", 0]
    assert work("heads", "--corpus", *files, *chosen).code == 0
    found = json.loads(run("merge", tmp_path / "run", "--format", "json").out)
    counted = hni.head_report(
        *tiny, SOURCES, TARGETS, corpus=zip(SOURCES, TARGETS, strict=True),
        relevance_sentences=None if relevance else 0,
    )  # fmt: skip
    assert len(found["rows"]) == len(counted.rows)
    for row, expected in zip(found["rows"], counted.rows, strict=True):
        assert row == {
            name: pytest.approx(value, abs=1e-6) if isinstance(value, float) else value
            for name, value in expected.items()
        }
    assert "relevance" in run("merge", tmp_path / "run", "--format", "csv").out


@pytest.mark.parametrize("verb", VERBS)
def test_parquet_and_json_shards_load_with_datasets(work, run, tmp_path, verb, monkeypatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    assert work(verb, "--limit" if verb != "align" else "--shard-size", 24, folder="json").code == 0
    assert work(verb, "--shard-format", "parquet").code == 0
    kept = datasets.load_dataset(str(tmp_path / "run/shards"), split="train", cache_dir=str(tmp_path / "cache"))
    lines = datasets.load_dataset(str(tmp_path / "json/shards"), split="train", cache_dir=str(tmp_path / "cache"))
    assert kept["line"] == lines["line"] == list(range(1, 25))
    assert kept.to_list() == rows_of(tmp_path / "run")
    if verb in ("attribute", "align"):
        assert run("merge", tmp_path / "run", "--output", tmp_path / "all.parquet").code == 0
        assert list(read_rows(tmp_path / "all.parquet")) == rows_of(tmp_path / "run")
        message = "run with --shard-format parquet"
        assert message in run("merge", tmp_path / "json", "--output", tmp_path / "x.parquet").err


@pytest.mark.parametrize("verb", VERBS)
def test_shards_load_with_datasets_where_the_first_lines_were_refused(work, tmp_path, verb) -> None:
    import datasets

    source, found = tmp_path / "bad.en", []
    source.write_bytes(b"nul \0\n" * 3 + b"A dog.\nTwo cats.\n")
    for format in ("jsonl", "parquet"):
        assert work(verb, "--shard-size", 2, "--shard-format", format, files=[source], folder=format).code == 0
        place = {"path": str(tmp_path / format / "shards"), "cache_dir": str(tmp_path / "cache")}
        loaded = datasets.load_dataset(**place, split="train")
        found.append(loaded.features)
        assert loaded["line"] == [1, 2, 3, 4, 5]
        assert [row["line"] for row in loaded if any(row[name] for name in row if name != "line")] == [4, 5]
    assert found[0] == found[1]  # the columns and their types


BAD = [b"A dog.", b"", b"gr\xfc\xdfe", b"nul \0", b"shells " * 70, b"no\xc2\xa0break", b"last"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_bad_lines_keep_their_place_and_are_listed(work, run, tmp_path, verb, format) -> None:
    source = tmp_path / "bad.en"
    source.write_bytes(b"\n".join(BAD))
    code, _, err = work(verb, "--shard-size", 3, "--shard-format", format, files=[source])
    assert code == 0
    listed = [row for path in sorted((tmp_path / "run/bad").iterdir()) for row in read_rows(path)]
    expected = [3, 4, 5] if verb == "align" else [2, 3, 4, 5]  # a line without words has no links
    assert [row["line"] for row in listed] == expected
    assert all(word in row["reason"] for word, row in zip(("0xfc", "NUL", "positions"), listed[-3:], strict=True))
    rows = rows_of(tmp_path / "run")
    assert [row["line"] for row in rows] == list(range(1, 8))
    empty = [row["line"] for row in rows if all(value is None for name, value in row.items() if name != "line")]
    assert empty == expected
    assert err.count("its row is empty") == len(expected)
    merged = run("merge", tmp_path / "run")
    assert merged.code == 0
    assert f"{len(expected)} lines were skipped" in merged.err
    if verb == "align":
        assert [n for n, line in enumerate(merged.out.split("\n")[:-1], 1) if not line] == [2, 3, 4, 5]


def test_strict_stops_and_what_is_done_stays(work, tmp_path) -> None:
    source = tmp_path / "bad.en"
    source.write_bytes(b"\n".join(BAD[:1] * 3 + BAD))
    code, _, err = work("attribute", "--shard-size", 3, "--strict", files=[source])
    assert (code, err) == (2, "hf-nmt-interp attribute: error: line 5: source: has no words (--strict)\n")
    assert [path.name for path in shards_of(tmp_path / "run")] == ["000000.jsonl"]


@pytest.mark.parametrize("verb", ["align", "attribute"])
def test_a_shorter_target_file_is_told(work, run, files, tmp_path, verb) -> None:
    files[1].write_text("".join(f"{line}\n" for line in TARGETS[:15]), encoding="utf-8")
    code, _, err = work(verb)
    assert code == 2
    said = "line 16: missing; the files must have the same number of lines; the rows of the rest are empty"
    assert err.splitlines()[-1].endswith(f"{files[1]}, {said}")
    assert run("merge", tmp_path / "run").out.count("\n") == 24
    assert [row["line"] for row in rows_of(tmp_path / "run") if row.get("source")] == list(range(1, 16))


@pytest.mark.parametrize("verb", VERBS)
def test_processes_split_the_work_and_end_with_the_same_files(work, tmp_path, monkeypatch, verb) -> None:
    assert work(verb, folder="whole").code == 0
    seen = []
    before = sharded_run.work
    monkeypatch.setattr(
        sharded_run, "work", lambda job, lines, *more: seen.append(len(lines)) or before(job, lines, *more)
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (1, 0):
        monkeypatch.setenv("RANK", str(rank))
        assert work(verb).code == 0
        assert sum(seen) == {1: 10, 0: 24}[rank]
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "whole")


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_run_that_fails_goes_on_to_the_same_bytes(work, run, tmp_path, monkeypatch, format) -> None:
    assert work("attribute", "--shard-format", format, folder="whole").code == 0
    before, calls = sharded_run.work, []

    def fails(job, lines, *more):
        calls.append(len(lines))
        if len(calls) == 2:
            raise RuntimeError("power cut")
        return before(job, lines, *more)

    monkeypatch.setattr(sharded_run, "work", fails)
    with pytest.raises(RuntimeError):
        work("attribute", "--shard-format", format)
    assert "is not complete; run the same command again to resume" in run("merge", tmp_path / "run").err
    (tmp_path / "run/bad").mkdir(exist_ok=True)
    left = [f"shards/.000001.{format}", "bad/.000001.jsonl", "shards/.README.md"]  # as kill -9 leaves them
    left += [".run.json", ".total.json"]
    for name in left:
        (tmp_path / f"run/{name}.00000077.part").write_bytes(b"{")
    err = work("attribute", "--shard-format", format).err
    assert all(
        f"{name}.00000077.part is incomplete because its run was killed; it is removed and written again" in err
        for name in left
    )
    assert sum(calls) == 10 + 10 + 14
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "whole")
    (tmp_path / f"run/shards/000001.{format}").unlink()
    assert "1 of 3 shards are missing, the first is 000001" in run("merge", tmp_path / "run").err


def test_one_of_several_processes_leaves_what_others_may_be_writing(work, tmp_path, monkeypatch) -> None:
    assert work("attribute").code == 0
    part = tmp_path / "run/.run.json.00000077.part"
    part.touch()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert work("attribute").code == 0
    assert part.exists()


def test_killed_and_resumed_is_byte_for_byte_the_same(work, model_folder, files, tmp_path) -> None:
    assert work("attribute", "--shard-size", 1, folder="whole").code == 0
    arguments = ["attribute", "--input", files[0], "--target-file", files[1], "--method", "attention", "--model"]
    arguments += [model_folder, "--batch-size", 4, "--shard-size", 1, "--shards", tmp_path / "run"]
    process = subprocess.Popen([sys.executable, "-m", "hf_nmt_interp", *map(str, arguments)])
    deadline = time.monotonic() + 120
    while not list((tmp_path / "run").glob("shards/*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = len(list((tmp_path / "run").glob("shards/*.jsonl")))
    assert 0 < done < 24
    assert work("attribute", "--shard-size", 1).code == 0
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "whole")


@pytest.mark.slow
def test_accelerate_launch_splits(model_folder, files, tmp_path, work) -> None:
    assert work("align", folder="whole").code == 0
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "-m", "hf_nmt_interp"]
    command += ["align", *files, "--method", "attention", "--model", model_folder, "--batch-size", "4"]
    command += ["--shard-size", "10", "--shards", tmp_path / "run"]
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    found = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv", "folder", "saved"])
def test_datasets_of_every_kind(work, run, tmp_path, kind) -> None:
    import datasets

    assert work("align").code == 0
    rows = [{"en": source, "de": target} for source, target in zip(SOURCES, TARGETS, strict=True)]
    data = datasets.Dataset.from_list(rows)
    place = tmp_path / f"data.{kind}"
    if kind == "jsonl":
        place.write_text("".join(json.dumps({"translation": row}) + "\n" for row in rows))
    elif kind == "saved":
        data.save_to_disk(place)
    elif kind == "folder":
        place.mkdir()
        data.to_parquet(place / "train.parquet")
    else:
        {"parquet": data.to_parquet, "csv": data.to_csv}[kind](place)
    assert work("align", "--dataset", place, "--fields", "en", "de", files=[], folder="set").code == 0
    assert rows_of(tmp_path / "set") == rows_of(tmp_path / "run")


def test_rows_of_a_dataset_that_are_not_text(work, tmp_path) -> None:
    place = tmp_path / "data.jsonl"
    place.write_text('{"en": "A dog."}\n{"en": 3}\nnot json\n{"de": "x"}\n{"en": "\\ud800"}\n{"en": "last"}\n')
    code, _, err = work("attribute", "--dataset", place, "--fields", "en", files=[])
    assert (code, err.count("its row is empty")) == (0, 4)
    assert [bool(row.get("source")) for row in rows_of(tmp_path / "run")] == [True, False, False, False, False, True]
    code, _, err = work("attribute", "--dataset", place, "--fields", "fr", files=[], folder="other")
    assert (code, "no field 'fr'; it has 'en'" in err) == (2, True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\n", "'utf-8' codec can't decode byte 0xff"),
        (b'A dog.\n"not closed\nx\n', "Error tokenizing data. C error: EOF inside string"),
        (b"A dog.\n" * 20 + b"a,b,c,d\n", "Error tokenizing data. C error: Expected 1 fields in line 22, saw 4"),
    ],
)
def test_datasets_that_break_in_the_middle(work, tmp_path, content, reason) -> None:
    place = tmp_path / "data.csv"
    place.write_bytes(b"en\n" + content)
    code, _, err = work("align", "--dataset", place, "--fields", "en", files=[])
    assert (code, err.count("\n")) == (2, 1)
    assert f"dataset: {place} (config None, split train) cannot be loaded: {reason}" in err


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("attribute", ["A dog."], "--shards: does not take sentences as arguments; give --input FILE or"),
        ("attribute", ["--dataset", "x"], "--shards: needs either text files or --dataset"),
        ("attribute", ["--output", "x"], "--output: is not supported with --shards; give it to merge"),
        ("attribute", ["--target", "x"], "not allowed with argument --target-file"),
        ("contributions", ["--method", "magic"], "--method: 'magic' is not one of"),
        ("attribute", ["--set", "layer=9"], "layer: 9 is out of range"),
        ("attribute", ["--method", "lrp"], "--shards: supports only one method and one model"),
        ("contributions", ["--figure", "x.svg"], "--figure: is not supported with --shards"),
        ("contributions", ["--source-tokens", "5"], "--source-tokens: is not supported with --shards"),
        ("contributions", ["--statistic", "magic"], "--statistic: 'magic' is not one of"),
        ("heads", ["--trees", "x"], "--trees: is not supported with --shards"),
        ("heads", ["--relevance-sentences", "5"], "--relevance-sentences: must be 0 (none) or left out"),
        ("align", ["--translations", "x"], "--translations: the translations are given in TARGET"),
    ],
)
def test_wrong_arguments_are_one_line(work, verb, arguments, message) -> None:
    code, out, err = work(verb, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_another_run_is_refused(work, files, tmp_path) -> None:
    assert work("attribute").code == 0
    assert "was started with batch_size 4, not 3" in work("attribute", "--batch-size", 3).err
    files[0].write_text(files[0].read_text() + "One more.\n")
    assert "was started with sha256 of input" in work("attribute").err
    (tmp_path / "other/shards").mkdir(parents=True)
    (tmp_path / "other/shards/000000.jsonl").write_text("")
    assert "exists but was not created by --shards; choose another folder" in work("attribute", folder="other").err


def test_other_counts_are_another_run(work, tmp_path) -> None:
    counted = [tmp_path / f"counted.{side}" for side in ("en", "de")]
    for path in counted:
        path.write_text("A dog.\n")
    heads = "heads", "--relevance-sentences", 0, "--corpus", *counted
    assert work(*heads, folder="heads").code == 0
    counted[0].write_text("Two cats.\n")
    assert "was started with sha256 of corpus" in work(*heads, folder="heads").err


@pytest.mark.parametrize(
    ("rank", "processes", "message"),
    [("x", "2", "RANK: 'x' is not"), ("2", "2", "RANK: 2 is not below WORLD_SIZE, 2")],
)
def test_wrong_places_of_processes(work, monkeypatch, rank, processes, message) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", processes)
    assert message in work("attribute").err


def test_processes_share_only_shards(run, monkeypatch, work) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "2 processes cannot share this" in run("env").err
    assert "several processes cannot share stdin" in work("attribute", files=["-"]).err
    monkeypatch.delenv("WORLD_SIZE")
    assert "--dataset: needs --shards" in run("attribute", "--dataset", "x").err


def test_batches_are_of_similar_length_and_of_long_lines_smaller() -> None:
    texts = {n: ("x" * size,) for n, size in enumerate([3, 900, 5, 900, 4, 900, 1])}
    found = list(sharded_run.batches(texts, 4))
    assert sorted(n for batch in found for n in batch) == list(range(7))
    assert all(len(batch) * len(texts[batch[0]][0]) <= 1024 or len(batch) == 1 for batch in found)
    assert [len(texts[n][0]) for batch in found for n in batch] == [900, 900, 900, 5, 4, 3, 1]


def test_a_refused_side_of_a_line_is_named_without_an_index() -> None:
    def refuse(lines):
        raise InputError("targets", None, "101 tokens are more than the model's 64 positions", "cut them", row=0)

    for error in sharded_run.try_rows(refuse, ["a", "b"]):
        assert str(error) == "target: 101 tokens are more than the model's 64 positions; cut them"


def test_one_refused_line_does_not_harm_its_batch() -> None:
    class Picky(sharded_run.Job):
        def rows(self, lines):
            if any(line == ("bad",) for line in lines):
                raise InputError("source", None, "refused")
            return [{"text": line[0]} for line in lines]

    lines = [("a",), ("bad",), ("ccc",), InputError("line", None, "unreadable"), ("bb",), ("bad",)]
    found = sharded_run.work(Picky(), lines, 4)
    assert [str(row) if isinstance(row, InputError) else row["text"] for row in found] == [
        "a", "source: refused", "ccc", "line: unreadable", "bb", "source: refused",
    ]  # fmt: skip


def test_a_file_is_complete_or_not_there(tmp_path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"), written(path, JsonLines) as writer:
        writer.write([{"a": 1}, {"a": float("nan")}])
    assert list(path.parent.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match=r"File exists: .*/file'"), written(tmp_path / "file" / "x", JsonLines):
        pass
    with pytest.raises(InputError, match="exists but was not created by --shards; choose another folder"):
        ShardFolder(tmp_path / "file").begin({})


def test_processes_of_the_same_number_on_two_machines_may_write_the_same_file(tmp_path) -> None:
    path = tmp_path / "total.json"
    with written(path, JsonLines) as one, written(path, JsonLines) as other:
        for writer in (one, other):
            writer.write([{"lines": 3}])
    assert path.read_text() == '{"lines": 3}\n'
    assert list(tmp_path.iterdir()) == [path]
