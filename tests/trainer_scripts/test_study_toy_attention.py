"""The toy studies end to end at tiny sizes, wrong arguments."""

import csv
import json
import sys

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies import toy_attention as study
from tests.reference import toy_attention as reference
from trainer_scripts import study_toy_attention

SMALL = ["--seeds", "3", "--steps", "4", "--classifier_steps", "4", "--eval_steps", "2", "--hidden_size", "6"]
SMALL += ["--batch_size", "2", "--test_size", "12", "--heads", "2", "--candidates", "3", "--trials", "2"]


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["study_toy_attention.py", "--output_dir", str(tmp_path), *SMALL, *arguments])
        study_toy_attention.main()
        return capsys.readouterr()

    return call


def rows_in(file):
    with open(file, encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def curves(rows):
    return list(dict.fromkeys(row["curve"] for row in rows))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("copying", ["40-of-40", "40-of-60"]),
        ("mixture", ["mixture", "40-of-80"]),
        ("permuted", ["permuted", "40-of-60"]),
        ("locality", list(study.GAMMAS.values())),
        ("frozen", ["A(α, α frozen β)", "A(α, β uniform)", "A(α, α other seed)"]),
    ],
)
def test_each_study_writes_a_figure_its_numbers_and_a_table(name, expected, run, tmp_path):
    printed = run(name).out
    rows = rows_in(tmp_path / f"{name}.csv")
    assert curves(rows) == expected
    assert len(rows) == len(expected) * 3 * 3  # seeds, evaluations
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    assert "accuracy" in printed
    before = (tmp_path / f"{name}.csv").read_bytes()
    run(name)  # reads what is there
    assert (tmp_path / f"{name}.csv").read_bytes() == before


def test_heads_are_tried_alone_then_put_together(run, tmp_path, monkeypatch):
    seen = {}
    real = study.copy

    def copy(args, name, task, members):
        rows = real(args, name, task, members)
        seen[name] = members
        if name == "single head":  # head 0 is good, 1 and 2 are bad
            for row in rows:
                row["value"] = 0.99 if members[row["seed"]].heads == (0,) else 0.11
        return rows

    monkeypatch.setattr(study, "copy", copy)
    assert "of 3 heads 1 are good, 2 are bad" in run("heads").err
    assert [(m.model, m.heads, m.data) for m in seen["single head"]] == [
        (0, (head,), trial) for head in range(3) for trial in range(2)
    ]
    for members in (seen["all heads bad"], seen["one head good"], seen["random heads"]):
        assert [(m.model, m.data) for m in members] == [(0, 2), (0, 3), (0, 4)]  # data that heads were not tried with
    assert {tuple(sorted(m.heads)) for m in seen["all heads bad"]} == {(1, 2)}
    assert all(m.heads[0] in (1, 2) and m.heads[1] == 0 for m in seen["one head good"])
    assert [m.heads for m in seen["random heads"]] == [(3, 4), (5, 6), (7, 8)]
    rows = rows_in(tmp_path / "heads.csv")
    assert curves(rows) == ["single head", "all heads bad", "one head good", "random heads"]


def test_too_few_heads_are_an_error(run):
    with pytest.raises(
        InputError, match=r"--candidates: 3 gave 0 good and 3 bad heads, but 1 and 2 are needed; increase it"
    ):
        run("heads")


def test_knowing_the_words_left_gives_eleven_percent():
    assert reference.accuracy_of_a_bag(2) == 0.75
    assert f"{reference.accuracy_of_a_bag(40):.0%}" == "11%"
    assert "gets 11 % of them right" in study_toy_attention.__doc__


def test_other_settings_need_another_folder(run, tmp_path):
    run("copying")
    assert json.loads((tmp_path / "settings.json").read_text())["steps"] == 4
    with pytest.raises(InputError, match=r"--output_dir: '.+' has runs with steps=4; use the same, or another folder"):
        run("copying", "--steps", "6")


def test_one_direction_has_runs_of_its_own(run, tmp_path):
    run("locality")
    both = rows_in(tmp_path / "locality.csv")
    settings = tmp_path / "settings.json"
    old = json.loads(settings.read_text())
    assert old.pop("bidirectional") is True
    settings.write_text(json.dumps(old))  # a folder from before the setting existed
    run("locality")
    assert rows_in(tmp_path / "locality.csv") == both
    with pytest.raises(InputError, match=r"has runs with bidirectional=True; use the same, or another folder"):
        run("locality", "--bidirectional", "false")
    run("locality", "--bidirectional", "false", "--output_dir", str(tmp_path / "forward"))
    one = rows_in(tmp_path / "forward" / "locality.csv")
    assert len(one) == len(both)
    assert one != both


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bidirectional", "no"], "--bidirectional: 'no' is not one of true, false"),
        (["--seeds", "0"], "--seeds: 0 is too small; use at least 1"),
        (["--steps", "5"], "--steps: 5 is not a multiple of --eval_steps 2"),
    ],
)
def test_wrong_arguments_are_named(options, message, run):
    with pytest.raises(InputError, match=message):
        run("copying", *options)


def test_one_seed_has_no_other_to_agree_with(run):
    with pytest.raises(InputError, match="--seeds: 1 leaves no other seed to compare attention with; use at least 2"):
        run("frozen", "--seeds", "1")
