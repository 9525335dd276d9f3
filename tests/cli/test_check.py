"""Verbs that check translations: rows, exit code, shards, pages.

Also for cli/verbs/check.py, cli/verbs/check_table.py and report/checks.py.
"""

import json
import re

import pytest

from hf_nmt_interp.analysis.signals import chosen_signals
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies import check_table
from tests.shard_files import rows_of

SOURCES = "The cat is sleeping on the sofa. It is raining.\nI like tea.\n"
TARGETS = "Die Katze schläft auf dem Sofa.\nIch mag Tee.\n"


@pytest.fixture
def texts(tmp_path):
    paths = tmp_path / "a", tmp_path / "b"
    for path, text in zip(paths, (SOURCES, TARGETS), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_an_omission_is_named_in_all_formats(run, texts, tmp_path) -> None:
    shown = run("check", *texts)
    assert shown.code == 0
    assert re.search(r"1 +omitted_clause \(5.0%\) +It is raining.", shown.out)
    assert shown.err.startswith("2 lines, ")
    assert "1 with an error found" in shown.err
    assert "omitted_clause in 1 (false alarms 5.0%)" in shown.err
    rows = [json.loads(line) for line in run("check", *texts, "--format", "json").out.splitlines()]
    assert [row["untranslated_text"] for row in rows] == [["It is raining."], []]
    assert rows[0]["verdicts"].keys() == {"detached", "omission", "repetition", "omitted_clause"}
    assert all("false_alarms" in verdict for verdict in rows[0]["verdicts"].values())
    header, first, _ = run("check", *texts, "--format", "tsv").out.splitlines()
    assert dict(zip(header.split("\t"), first.split("\t"), strict=True))["untranslated"] == "It is raining."
    assert run("check", *texts, "--output", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<mark") == 4
    assert '<mark title="not translated">raining</mark>' in page
    assert "<b>omitted_clause found</b>: score 0.6" in page
    assert "% false alarms" in page


def test_the_exit_code_is_1_above_a_share_of_lines(run, texts, tmp_path) -> None:
    texts[1].write_text("Die Regierung beschloss gestern ein neues Gesetz über die Steuern.\nIch mag Tee.\n")
    assert run("check", *texts, "--fail-above", "0.5").code == 0
    shown = run("check", *texts, "--fail-above", "0.4", "--format", "tsv")
    assert (shown.code, shown.out.count("detached (5.0%)")) == (1, 1)
    assert "'2' is not a share from 0 to 1" in run("check", *texts, "--fail-above", "2").err


def test_shards_resume_and_merge(run, texts, tmp_path) -> None:
    folder = tmp_path / "run"
    assert run("check", *texts, "--shards", folder, "--shard-size", 1).code == 0
    rows = rows_of(folder)
    assert run("check", *texts, "--shards", folder, "--shard-size", 1).code == 0
    assert rows_of(folder) == rows
    whole = [json.loads(line) for line in run("check", *texts, "--format", "json").out.splitlines()]
    assert [row["untranslated"] for row in rows] == [row["untranslated"] for row in whole]
    for name, text in (("all.tsv", "It is raining."), ("all.html", "<mark"), ("all.jsonl", "untranslated_text")):
        assert run("merge", folder, "--output", tmp_path / name).code == 0
        assert text in (tmp_path / name).read_text(encoding="utf-8")


def test_an_empty_source_is_refused_and_an_empty_translation_is_checked(run, texts) -> None:
    texts[0].write_text("\nI like tea.\n")
    texts[1].write_text("Ja.\n\n")
    shown = run("check", *texts, "--format", "json")
    assert "line 1: source: has no words; its row is empty" in shown.err
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert rows[0] == {"line": 1}
    assert rows[1]["untranslated_text"] == ["I like tea."]


def test_what_check_table_refuses(run, texts) -> None:
    assert "either LABELS or --removed is required" in run("check-table").err
    assert "--save: is supported only with LABELS" in run("check-table", "--removed", *texts, "--save", "x.json").err
    assert "needs columns src, mt and labels" in run("check-table", texts[0]).err
    assert "SOURCE: no file" in run("check").err
    assert "signals: 'x' is not one of" in run("check", *texts, "--signals", "x").err


def test_check_table_adds_signals_to_the_default_ones(run, tmp_path, monkeypatch) -> None:
    def read(model, tokenizer, labels, names, batch_size):
        asked.extend(names)
        raise InputError("labels", None, "stop here")

    asked: list[str] = []
    monkeypatch.setattr(check_table, "read_labelled", read)
    (tmp_path / "labels.csv").write_text("src,mt,omission\nI like tea.,Ich mag Tee.,0\n", encoding="utf-8")
    assert "stop here" in run("check-table", tmp_path / "labels.csv", "--signals", "lrp_share").err
    assert asked == [*chosen_signals(), "lrp_share"]
