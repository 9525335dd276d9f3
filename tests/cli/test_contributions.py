"""The verb contributions: means as before, studies of prefixes, models and checkpoints, figures.

Also for cli/verbs/contributions.py and studies/prefixes.py.
"""

import json
import shutil
from dataclasses import replace

import pytest

from hf_nmt_interp.studies.prefixes import PREFIXES, Reference
from tests.made_up_corpus import BY_LENGTH as SOURCES
from tests.made_up_corpus import BY_LENGTH_TARGETS as TARGETS


@pytest.fixture
def files(tmp_path):
    for name, lines in (("en", SOURCES), ("de", TARGETS)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return ["--input", tmp_path / "en", "--target-file", tmp_path / "de", "--format", "json"]


def rows_of(ran):
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def test_means_of_sentences(run, model_folder):
    common = ["contributions", "--model", model_folder, "--format", "json", *SOURCES[:2]]
    rows = rows_of(run(*common, "--statistic", "source_entropy"))
    assert {row["statistic"] for row in rows} == {"source_entropy"}
    assert set(rows[0]) == {"statistic", "position", "mean", "low", "high", "sentences"}
    assert "--source-tokens: no sentence has 99" in run(*common, "--source-tokens", "99").err


def test_prefixes_of_one_model(run, model_folder, files, tmp_path):
    common = ["contributions", "--model", model_folder, *files]
    rows = rows_of(run(*common, "--prefix", "reference", "random", "--figure", tmp_path / "one.svg"))
    assert {(row["model"], row["prefix"]) for row in rows} == {
        (model_folder.name, "reference"),
        (model_folder.name, "random"),
    }
    assert "<svg" in (tmp_path / "one.svg").read_text()
    assert (tmp_path / "one.csv").read_text().startswith("model,prefix,source_tokens,target_tokens,statistic,")


def test_several_models_and_checkpoints(run, model_folder, files, tmp_path):
    rows = rows_of(
        run("contributions", *files, "--compare", f"a={model_folder}", f"b={model_folder}", "--final", "b",
            "--statistic", "kl_to_final")
    )  # fmt: skip
    assert {row["model"] for row in rows} == {"a", "b"}
    assert max(row["mean"] for row in rows) < 1e-6
    for step in (5, 10):
        shutil.copytree(model_folder, tmp_path / "run" / f"checkpoint-{step}")
        (tmp_path / "run" / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    rows = rows_of(run("contributions", *files, "--checkpoints", tmp_path / "run", "--figure", tmp_path / "c.svg"))
    assert list(dict.fromkeys(row["model"] for row in rows)) == ["checkpoint-5", "checkpoint-10"]
    assert "kl_to_final" in {row["statistic"] for row in rows}
    assert (tmp_path / "c-training.svg").exists()


def test_the_pairs_that_a_study_uses_are_counted(run, model_folder, files):
    def counted(*options):
        ran = run("contributions", *files, "--compare", f"a={model_folder}", *options)
        return max(row["sentences"] for row in rows_of(ran)), ran.err

    used, err = counted()
    row = rows_of(run("contributions", *files, "--compare", f"a={model_folder}"))[0]
    lengths = f"of {row['source_tokens']} source and {row['target_tokens']} target tokens"
    given, more = len(SOURCES), "(--lengths and --within select more)\n"
    assert 1 < used < given
    others = f"the other {given - used} have other lengths"
    assert err == f"used {used} of {given} pairs: those {lengths}; {others} {more}"
    others = f"the other {given - 1} have other lengths or are beyond --pairs"
    assert counted("--pairs", 1) == (1, f"used 1 of {given} pairs: the first 1 (--pairs) {lengths}; {others} {more}")
    near, err = counted("--within", 7)
    assert used < near < given
    others = f"the other {given - near} have other lengths"
    assert err == f"used {near} of {given} pairs: those {lengths} (--within 7); {others} {more}"
    assert counted("--within", 99) == (len(SOURCES), "")


def test_a_table_of_a_study_has_the_sentences_of_each_row(run, model_folder, files):
    arguments = ["contributions", *files[:-2], "--compare", f"a={model_folder}", f"b={model_folder}"]
    used = run(*arguments).err.split()[1]
    head, _, first, *_ = run(*arguments).out.strip().splitlines()
    assert head.split() == ["model", "statistic", "pos", "mean", "low", "high", "n"]
    assert first.split()[:3] == ["a", "source_contribution", "0"]
    assert first.split()[-1] == used
    several = run(*arguments, "--prefix", "reference", "random", "--statistic", "accuracy").out
    assert several.split()[:6] == ["model", "pos", "mean", "low", "high", "n"]  # of references alone
    several = run(*arguments, "--prefix", "reference", "random", "--statistic", "source_part").out
    assert several.split()[:7] == ["model", "prefix", "pos", "mean", "low", "high", "n"]


def test_models_of_other_vocabularies_are_refused(run, model_folder, files):
    ran = run("contributions", *files, "--compare", f"a={model_folder}", "b=demo:en-de")
    assert ran.code == 2
    assert "--compare: demo:en-de has another vocabulary than the first model" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--statistic", "share"], "--statistic: 'share' is not one of source_contribution"),
        ([SOURCES[0], "--prefix", "random"], "--target-file: 0 references for 1 sentences; a study needs one each"),
        (["--lengths", "20", "--", "c"], "argument --lengths: '20' is not two numbers, e.g. 20,23"),
        (
            ["--lengths", "7,7", "--source-tokens", "7", "--target", "b", "--", "c"],
            "--lengths: gives both sides; leave --source-tokens and --target-tokens out",
        ),
        (["--compare", "a=x", "a=y", "--target", "b", "--", "c"], "--compare: two models are called 'a'"),
        (
            ["--checkpoints", "nowhere", "--target", "b", "c"],
            "--checkpoints: nowhere has no complete checkpoint-* folder",
        ),
    ],
)
def test_errors(run, model_folder, arguments, message):
    sentences = [SOURCES[0]] if arguments[0] == "--statistic" else []
    code, _, err = run("contributions", "--model", model_folder, *arguments, *sentences)
    assert code == 2
    assert message in err


def test_a_fourth_kind_of_prefix_is_one_class_and_one_line(run, model_folder, files, monkeypatch) -> None:
    class Backwards(Reference):
        """The references in the order of the sentences turned around."""

        is_reference = False

        def pairs(self, found, *arguments, **translating):
            return super().pairs(replace(found, targets=found.targets[::-1]), *arguments, **translating)

    monkeypatch.setitem(PREFIXES, "backwards", Backwards())
    given = "--model", model_folder, "--method", "attention", *files
    ran = run("contributions", *given, "--prefix", "reference", "backwards")
    found = {(row["prefix"], row["statistic"]) for row in rows_of(ran)}
    assert ("backwards", "source_entropy") in found
    assert ("reference", "accuracy") in found
    assert ("backwards", "accuracy") not in found
