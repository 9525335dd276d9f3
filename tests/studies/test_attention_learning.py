"""Curves and the row of table 2 from hand-made snapshots; also for report/attention_learning.py."""

import pytest
import torch

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.attention_learning import PAPER, learning_rows, learning_text, plot_agreement
from hf_nmt_interp.studies.attention_learning import (
    evaluation_steps,
    learning_curves,
    mean_agreement,
    read_snapshots,
    table_row,
)
from hf_nmt_interp.studies.snapshots import Snapshot

KEPT = torch.tensor([[True] * 4, [True, True, False, False]])


def peaks(*places: int) -> torch.Tensor:
    """Scores [2, 4] of two output words, whose highest positions are given; padding is highest of all."""
    scores = torch.zeros(2, 4)
    scores[torch.arange(2), torch.tensor(places)] = 1
    return scores.masked_fill(~KEPT, 9)


def snapshot(performance: float, **scores: torch.Tensor) -> Snapshot:
    return Snapshot(KEPT, scores, performance)


RUNS = {
    "standard": {
        0: snapshot(0.1, alpha=peaks(0, 0)),
        9: snapshot(0.8, alpha=peaks(1, 1), beta=peaks(1, 0), delta=peaks(2, 1)),
    },
    "uniform": {
        0: snapshot(0.0, beta=peaks(0, 1)),
        5: snapshot(0.2, beta=peaks(2, 1)),
        9: snapshot(0.3, beta=peaks(3, 0)),
    },
    "proxy": {9: snapshot(0.1, beta=peaks(0, 1))},
    "second_seed": {
        0: snapshot(0.1, alpha=peaks(0, 0)),
        5: snapshot(0.5, alpha=peaks(1, 0)),
        9: snapshot(0.7, alpha=peaks(1, 1)),
    },
}


def test_curves_by_hand():
    found = {(row["statistic"], row["step"]): row["value"] for row in learning_curves(RUNS)}
    assert [found["A(alpha,beta_uf)", step] for step in (0, 5, 9)] == [0.5, 0.5, 0]
    assert [found["A(delta,beta_uf)", step] for step in (0, 5, 9)] == [0.5, 1, 0]
    assert [found["A(beta_uf,beta_px)", step] for step in (0, 5, 9)] == [1, 0.5, 0]
    assert [found["A(alpha,alpha_2)", step] for step in (0, 5, 9)] == [0, 0.5, 1]
    assert found["A(alpha,beta)", 9] == 0.5
    assert found["A(random)", 9] == (1 / 4 + 1 / 2) / 2
    assert found["performance(second_seed)", 5] == 0.5


def test_row_by_hand():
    row = table_row(learning_curves(RUNS))
    # the first of two equally good steps of the uniform training is 0; A = 50 is exceeded by the second seed at step 9
    assert row == {
        "A(alpha,beta_uf)": 50,
        "A(beta_uf,beta_px)": 100,
        "A(delta,beta_uf)": 50,
        "A(alpha,beta)": 50,
        "A(random)": 37.5,
        "xi(alpha,beta_uf)": 70,
        "xi(alpha,beta)": 70,
        "xi*": 70,
        "best uniform step": 0,
        "starred": "",
    }


def test_a_second_seed_that_never_agrees_as_well_is_starred():
    runs = RUNS | {"second_seed": {0: RUNS["second_seed"][0]}}
    row = table_row(learning_curves(runs))
    assert row["starred"] == "xi(alpha,beta_uf) xi(alpha,beta)"
    assert row["xi(alpha,beta)"] == 10
    ours, paper = learning_rows({"ours": row}, "Multi30k")
    assert ours["ξ(α,β)"] == "10.0*"
    assert [paper[name] for name in ("A(α,βuf)", "A(α,β)", "Â", "ξ*")] == ["31", "49", "7", "66"]
    assert all(len(values) == len(ours) - 1 for values in PAPER.values())
    lines = learning_text({"A": row, "tau": row}, "Multi30k").splitlines()
    assert len(lines) == 4
    assert {len(line) for line in lines} == {len(lines[0])}
    assert len(lines[0]) <= 80


def test_a_study_that_has_just_begun_has_a_row_with_gaps():
    row = table_row(learning_curves({"standard": {0: RUNS["standard"][0]}}))
    assert row["A(alpha,beta_uf)"] is row["xi(alpha,beta)"] is row["best uniform step"] is None
    assert row["xi*"] == 10
    assert learning_rows({"ours": row})[0]["A(α,β)"] == ""


def test_kendall_has_no_baseline_and_leaves_padding_out():
    assert mean_agreement(peaks(1, 1), peaks(1, 1), KEPT, "kendall_tau") == 1
    row = table_row(learning_curves(RUNS, "kendall_tau"))
    assert row["A(random)"] == 0
    assert row["A(alpha,beta)"] == pytest.approx((100 - 100) / 2)


def test_figure_has_its_numbers_beside_it(tmp_path):
    plot_agreement(learning_curves(RUNS), tmp_path / "curves.svg")
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    assert 'A(alpha,beta_uf)",5,0.5' in (tmp_path / "curves.csv").read_text()


def test_wrong_input_is_named():
    with pytest.raises(InputError, match=r"runs: \['uniform'\] has no snapshots of 'standard'; train it first"):
        learning_curves({"uniform": RUNS["uniform"]})
    with pytest.raises(InputError, match="measure: 'rho' is not one of agreement, kendall_tau"):
        learning_curves(RUNS, "rho")
    with pytest.raises(InputError, match="paper: 'WMT' is not one of IMDB, AG News"):
        learning_rows({}, "WMT")
    with pytest.raises(
        InputError, match=r"u, v: have the shapes \[2, 4\] and \[1, 4\]; take snapshots on the same validation set"
    ):
        mean_agreement(peaks(0, 0), peaks(0, 0)[:1], KEPT)


def test_steps_of_the_paper():
    early = [0, 50, 100, 500, 1000, 1500]
    assert evaluation_steps(6000, early, 2000) == [0, 50, 100, 500, 1000, 1500, 3500, 5500, 6000]
    assert evaluation_steps(100, early, 2000) == [0, 50, 100]
    with pytest.raises(InputError, match=r"every, last: \(0, 9\) must be at least 1 step"):
        evaluation_steps(9, early, 0)
    with pytest.raises(InputError, match=r"folder: 'here' has no snapshots/\*.safetensors; run the training first"):
        read_snapshots("here")
