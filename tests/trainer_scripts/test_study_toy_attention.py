"""The toy studies end to end at tiny sizes, their summaries by hand, wrong arguments."""

import csv
import json
import sys

import pytest
import torch

from hf_nmt_interp.errors import InputError
from tests.reference import toy_attention as reference
from trainer_scripts import study_toy_attention as study

SMALL = ["--seeds", "3", "--steps", "4", "--classifier_steps", "4", "--eval_steps", "2", "--hidden_size", "6"]
SMALL += ["--batch_size", "2", "--test_size", "12", "--heads", "2", "--candidates", "3", "--trials", "2"]


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["study_toy_attention.py", "--output_dir", str(tmp_path), *SMALL, *arguments])
        study.main()
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
        InputError, match=r"--candidates 3: 0 good and 3 bad heads found, 1 and 2 are needed; raise it"
    ):
        run("heads")


def test_weights_of_models_differ_only_as_their_seeds_do():
    def weights(*member):
        return dict(study.new_translator(5, 4, study.Member(*member)).named_parameters())

    one, other_heads, other_model = weights(0, (1,), 0), weights(0, (2, 1), 3), weights(1, (1,), 0)
    head = "attention.weight.weight"
    assert [
        name
        for name in one
        if not torch.equal(one[name], other_heads[name].reshape(-1)[: one[name].numel()].view_as(one[name]))
    ] == [head]
    assert torch.equal(other_heads[head][4:], one[head])
    assert [name for name in one if torch.equal(one[name], other_model[name])] == [head]
    assert one[head].abs().max() <= 0.5  # 4 ** -0.5, as nn.Linear draws
    assert one["encoder.embed_tokens.weight"].abs().max() > 0.5  # normal


def test_gammas_against_the_twin():
    gamma = torch.randn(2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    place = torch.tensor([-1, 0, 3, 4, 5])  # the last one's next word is the last of all
    found = study.gammas(gamma, place)
    for model in range(2):
        expected = reference.gammas(gamma[model].tolist(), place.tolist())
        assert [found[name][model].item() for name in study.GAMMAS] == pytest.approx(expected)
    row = [0.0, 5.0, 3.0, 1.0, 1.0]  # the keyword is the second of five words
    assert reference.gammas([row, row], [1, -1]) == (5.0, 3.0, 2.0, 1.0)


def test_knowing_the_words_left_gives_eleven_percent():
    assert reference.accuracy_of_a_bag(2) == 0.75
    assert f"{reference.accuracy_of_a_bag(40):.0%}" == "11%"
    assert "right for 11 % of them" in study.__doc__


def test_summary_worked_by_hand():
    values = {0: [0.0, 0.96, 0.97], 1: [0.1, 0.5, 0.59], 2: [0.0, 0.95, 0.9], 3: [0.2, 0.3, 0.95]}
    rows = [
        {"curve": "a", "seed": seed, "step": 10 * i, "value": value}
        for seed, run in values.items()
        for i, value in enumerate(run)
    ]
    (found,) = study.summary(rows)
    assert (found["seeds"], found["learned"], found["failed"]) == (4, 2, 1)
    assert found["steps to 95 %"] == "10"  # 10, 10, 20
    assert (found["accuracy"], found["from"], found["to"]) == ("85.2%", "59.0%", "97.0%")


def test_other_settings_need_another_folder(run, tmp_path):
    run("copying")
    assert json.loads((tmp_path / "settings.json").read_text())["steps"] == 4
    with pytest.raises(InputError, match="its runs have steps=4; take the same, or another folder"):
        run("copying", "--steps", "6")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "0"], "--seeds 0: is too small; take 1 or more"),
        (["--steps", "5"], "--steps 5: take a multiple of --eval_steps 2"),
    ],
)
def test_wrong_arguments_are_named(options, message, run):
    with pytest.raises(InputError, match=message):
        run("copying", *options)


def test_one_seed_has_no_other_to_agree_with(run):
    with pytest.raises(InputError, match="--seeds 1: attention is compared with another seed's; take 2 or more"):
        run("frozen", "--seeds", "1")
