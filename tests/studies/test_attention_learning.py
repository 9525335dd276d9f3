"""Curves and the rows of the tables from hand-made snapshots.

Also for report/attention_learning.py and report/snell_tables.py.
"""

import pytest
import torch

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.attention_learning import learning_rows, learning_text, plot_agreement
from hf_nmt_interp.report.snell_tables import DATA_SETS, TABLES, paper_row
from hf_nmt_interp.studies.attention_learning import (
    PAIRS,
    evaluation_steps,
    is_complete,
    learning_curves,
    read_snapshots,
    table_row,
    word_agreements,
)
from hf_nmt_interp.studies.snapshots import Snapshot

KEPT = torch.tensor([[True] * 4, [True, True, False, False]])


def peaks(*places: int) -> torch.Tensor:
    """Scores [2, 4] of two output words, whose highest positions are given; padding is highest of all."""
    scores = torch.zeros(2, 4)
    scores[torch.arange(2), torch.tensor(places)] = 1
    return scores.masked_fill(~KEPT, 9)


def snapshot(performance: float, bleu: float | None = None, **scores: torch.Tensor) -> Snapshot:
    return Snapshot(KEPT, scores, performance, bleu)


RUNS = {
    "standard": {
        0: snapshot(0.1, alpha=peaks(0, 0)),
        9: snapshot(0.8, alpha=peaks(1, 1), beta=peaks(1, 0), delta=peaks(2, 1), alpha_opt=peaks(1, 0)),
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
    assert found["A(alpha_opt,beta)", 9] == 1
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
        "A(alpha_opt,beta)": 100,
        "A(random)": 37.5,
        "A(alpha,alpha_fr)": None,
        "A(beta_uf,beta_log)": None,
        "xi(alpha,beta_uf)": 70,
        "xi(beta_uf,beta_px)": 70,
        "xi(delta,beta_uf)": 70,
        "xi(alpha,beta)": 70,
        "xi*": 70,
        **{
            f"margin({pair})": None
            for pair in (*PAIRS, "alpha_opt,beta", "random", "alpha,alpha_fr", "beta_uf,beta_log")
        },
        "best uniform step": 0,
        "starred": "xi(beta_uf,beta_px)",  # 100 is never exceeded
    }


def test_row_with_margins():
    end = Snapshot(KEPT, RUNS["standard"][9].scores, 0.8, sentences=torch.tensor([4, 7]))
    row = table_row(learning_curves(RUNS | {"standard": {9: end}}))
    # of one right and one wrong sentence; both right
    assert [row[f"margin({pair})"] for pair in PAIRS] == [50, 0, 50, 50]
    assert (row["margin(random)"], row["margin(alpha,alpha_fr)"]) == (None, None)
    rows = learning_rows({"agreement": row}, "Multi30k")
    assert [line[""] for line in rows] == ["A", "±", "table 5"]
    assert (rows[1]["A(α,β)"], rows[1].get("ξ(α,β)")) == ("50.0", None)
    first, second = learning_text({"agreement": row}, "Multi30k").split("\n\n")
    assert [[line.split()[0] for line in half.splitlines()[1:]] for half in (first, second)] == [
        ["A", "±", "table"],
        ["A", "table"],
    ]


def test_frozen_attention_logistic_regression_and_bleu_by_hand():
    runs = {name: dict(snapshots) for name, snapshots in RUNS.items()}
    runs["frozen"] = {0: snapshot(0.1, alpha=peaks(1, 0)), 9: snapshot(0.1, alpha=peaks(0, 0))}
    runs["logistic"] = {0: snapshot(0.1, beta=peaks(0, 0))}
    for name in ("standard", "second_seed"):
        runs[name] = {step: snapshot(x.performance, step / 30, **x.scores) for step, x in runs[name].items()}
    row = table_row(learning_curves(runs), "bleu")
    assert row["A(alpha,alpha_fr)"] == 50  # of step 0; 0 at step 9
    assert row["A(beta_uf,beta_log)"] == 50  # of step 0 of the uniform training, as the other columns
    assert [row[name] for name in ("xi(alpha,beta)", "xi*")] == [pytest.approx(30)] * 2
    with pytest.raises(InputError, match="performance: 'bleu' was not measured in these snapshots; train with --perf"):
        table_row(learning_curves(RUNS), "bleu")
    with pytest.raises(InputError, match="performance: 'chrf' is not one of accuracy, bleu"):
        table_row(learning_curves(RUNS), "chrf")


def test_a_second_seed_that_never_agrees_as_well_is_starred():
    runs = RUNS | {"second_seed": {0: RUNS["second_seed"][0]}}
    row = table_row(learning_curves(runs))
    assert row["starred"] == "xi(alpha,beta_uf) xi(beta_uf,beta_px) xi(delta,beta_uf) xi(alpha,beta)"
    assert row["xi(alpha,beta)"] == 10
    ours, paper = learning_rows({"agreement": row}, "Multi30k")
    assert ours["ξ(α,β)"] == "10.0*"
    assert paper[""] == "table 5"
    assert [paper[name] for name in ("A(α,βuf)", "A(α,β)", "Â", "ξ*")] == ["31.02", "48.78", "7.11", "66.29"]
    halves = learning_text({"agreement": row, "kendall_tau": row}, "Multi30k").split("\n\n")
    for half in halves:
        lines = half.splitlines()
        assert [line.split()[:2] for line in lines[1::2]] == [["A", lines[1].split()[1]], ["tau", lines[3].split()[1]]]
        assert [line.split()[1] for line in lines[2::2]] == ["5", "3"]  # tables
        assert {len(line) for line in lines} == {len(lines[0])}
        assert len(lines[0]) <= 80
    assert [half.split()[0] for half in halves] == ["A(α,βuf)", "ξ(α,βuf)"]


def test_rows_of_the_paper():
    assert [paper_row(table, "Multi30k")["xi*"] for table in range(3, 9)] == [
        *("66.29", "37.89", "66.29", "37.89", "80.76", "52.28"),
    ]
    assert paper_row(5, "SST")["xi(beta_uf,beta_px)"] == "83.53*"
    assert (paper_row(5, "SST")["A(alpha,alpha_fr)"], paper_row(5, "SST")["A(beta_uf,beta_log)"]) == ("14", "46")
    assert paper_row(8, "SST") == {}  # BLEU of translation only
    assert "A(alpha,beta)" not in paper_row(3, "SST")
    assert [len(paper_row(table, "IWSLT14")) for table in sorted(TABLES.values())] == [8, 8, 10, 10, 10, 8]
    assert all(float(cell.rstrip("*")) <= 100 for name in DATA_SETS for cell in paper_row(5, name).values())


def test_a_folder_with_snapshots_of_one_set_only_is_refused_for_another(tmp_path):
    assert not is_complete(tmp_path, 5, ["valid", "train"])
    for step in (0, 5):
        snapshot(0.1, alpha=peaks(0, 0)).save(tmp_path / "snapshots" / f"{step}.safetensors")
    assert is_complete(tmp_path, 5)
    assert not is_complete(tmp_path, 9)
    with pytest.raises(InputError, match=r"--on: \['train'\] but .+ has no snapshots on train; choose another"):
        is_complete(tmp_path, 5, ["train"])
    with pytest.raises(InputError, match=r"folder: '.+' has no snapshots-train/\*.safetensors"):
        read_snapshots(tmp_path, "train")


def test_a_study_that_has_just_begun_has_a_row_with_gaps():
    row = table_row(learning_curves({"standard": {0: RUNS["standard"][0]}}))
    assert row["A(alpha,beta_uf)"] is row["xi(alpha,beta)"] is row["best uniform step"] is None
    assert row["xi*"] == 10
    assert learning_rows({"agreement": row})[0]["A(α,β)"] == ""


def test_kendall_has_no_baseline_and_leaves_padding_out():
    assert word_agreements(peaks(1, 1), peaks(1, 1), KEPT, "kendall_tau").tolist() == [1, 1]
    row = table_row(learning_curves(RUNS, "kendall_tau"))
    assert row["A(random)"] == 0
    assert row["A(alpha,beta)"] == pytest.approx((100 - 100) / 2)


def test_figure_has_its_numbers_beside_it(tmp_path):
    plot_agreement(learning_curves(RUNS), tmp_path / "curves.svg")
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    assert 'A(alpha,beta_uf)",5,0.5,' in (tmp_path / "curves.csv").read_text()


def test_wrong_input_is_named():
    with pytest.raises(InputError, match=r"runs: \['uniform'\] has no snapshots of 'standard'; train it first"):
        learning_curves({"uniform": RUNS["uniform"]})
    with pytest.raises(InputError, match="measure: 'rho' is not one of agreement, kendall_tau"):
        learning_curves(RUNS, "rho")
    with pytest.raises(InputError, match="paper: 'WMT' is not one of IMDB, Yelp, AG News"):
        learning_rows({}, "WMT")
    with pytest.raises(
        InputError, match=r"u, v: have the shapes \[2, 4\] and \[1, 4\]; take snapshots on the same validation set"
    ):
        word_agreements(peaks(0, 0), peaks(0, 0)[:1], KEPT)


def test_steps_of_the_paper():
    early = [0, 50, 100, 500, 1000, 1500]
    assert evaluation_steps(6000, early, 2000) == [0, 50, 100, 500, 1000, 1500, 3500, 5500, 6000]
    assert evaluation_steps(100, early, 2000) == [0, 50, 100]
    with pytest.raises(InputError, match=r"every, last: \(0, 9\) must be at least 1 step"):
        evaluation_steps(9, early, 0)
    with pytest.raises(InputError, match=r"folder: 'here' has no snapshots/\*.safetensors; run the training first"):
        read_snapshots("here")
