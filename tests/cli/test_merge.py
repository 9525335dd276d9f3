"""What `merge` refuses: folders and shards that are not whole.

Also for cli/shards.py and cli/verbs/merge.py.
"""

import re

import pytest

from hf_nmt_interp.cli.shards import SHARD_FORMATS
from tests.shard_files import bytes_of


def test_the_help_tells_what_the_shards_of_each_verb_give(run) -> None:
    shown = run("merge", "--help").out
    for verb, formats in {"attribute": "json, parquet", "align": "pharaoh, json, parquet"}.items():
        assert re.search(rf"^{verb} +one file .*: {formats}$", shown, re.MULTILINE)
    assert re.search(r"^heads +the report .*: table, json, csv$", shown, re.MULTILINE)
    assert "contributions: sources of N tokens only" in " ".join(shown.split())


def test_merge_refuses(work, run, tmp_path) -> None:
    assert "is not a folder that --shards wrote" in run("merge", tmp_path / "none").err
    assert work("align").code == 0
    assert (
        "'table' is not supported for align; choose one of pharaoh, json"
        in run("merge", tmp_path / "run", "--format", "table").err
    )
    assert "these shards were written by align" in run("merge", tmp_path / "run", "--source-tokens", 3).err
    for name, text, reason in (
        ("total", "{}", "is not complete"),
        ("total", '{"lines": 24, "shards": "3"}', "is not complete"),
        (
            "run",
            '{"verb": "align", "shard_size": 10, "shard_format": "../x"}',
            "has no shard_format of jsonl, parquet",
        ),
        (
            "run",
            '{"verb": "x", "shard_size": 10, "shard_format": "jsonl"}',
            "its run.json names the verb 'x', not one of",
        ),
        ("run", "[]", "is not a folder that --shards wrote"),
    ):
        (tmp_path / "run" / f"{name}.json").write_text(text)
        assert reason in run("merge", tmp_path / "run").err


@pytest.mark.parametrize("format", SHARD_FORMATS)
def test_merge_refuses_shards_that_are_not_whole(work, run, tmp_path, format) -> None:
    assert work("align", "--shard-format", format).code == 0
    whole = bytes_of(tmp_path / "run")
    shard = tmp_path / f"run/shards/000001.{format}"
    content = shard.read_bytes()
    cuts = [0, len(content) // 2, len(content) - 2]
    cuts += [content.index(b"\n") + 1] if format == "jsonl" else []  # after a line, where nothing seems to be wrong
    for size in cuts:
        shard.write_bytes(content[:size])
        for kind in ("pharaoh", "json", *(["parquet"] if format == "parquet" else [])):
            code, _, err = run("merge", tmp_path / "run", "--format", kind, "--output", tmp_path / "out")
            assert (code, err.count("\n")) == (2, 1)
            assert f"{shard}: is damaged (" in err
            assert "); delete it and run the same command again" in err
            assert not (tmp_path / "out").exists()
    shard.unlink()
    assert work("align", "--shard-format", format).code == 0
    assert bytes_of(tmp_path / "run") == whole


def test_merge_does_not_advise_to_delete_what_it_may_not_read(work, run, tmp_path) -> None:
    assert work("align").code == 0
    shard = tmp_path / "run/shards/000001.jsonl"
    shard.unlink()
    shard.mkdir()
    expected = f"hf-nmt-interp merge: error: {shard}: Is a directory\n"
    assert run("merge", tmp_path / "run", "--output", tmp_path / "out") == (2, "", expected)


def test_merge_knows_the_endings_of_the_verb(work, run, tmp_path) -> None:
    assert work("align").code == 0
    assert run("merge", tmp_path / "run", "--output", tmp_path / "out.links").code == 0
    assert work("attribute", folder="scores").code == 0
    code, _, err = run("merge", tmp_path / "scores", "--output", tmp_path / "out.tsv")
    assert (code, "out.tsv' does not end in .json, .jsonl or .parquet; use one" in err) == (2, True)
    assert not (tmp_path / "out.tsv").exists()


def test_merge_of_nothing(work, run, tmp_path) -> None:
    (tmp_path / "empty").touch()
    assert work("align", "--shard-format", "parquet", files=[tmp_path / "empty"]).code == 0
    assert run("merge", tmp_path / "run") == (0, "", "")
    code, _, err = run("merge", tmp_path / "run", "--format", "parquet", "--output", tmp_path / "out")
    assert (code, "there is nothing to merge, because the input had no lines" in err) == (2, True)
