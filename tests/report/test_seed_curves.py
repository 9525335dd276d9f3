"""Curves of many runs: thin lines, medians, numbers beside the figure."""

import csv

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report import seed_curves
from hf_nmt_interp.report.seed_curves import plot_seeds

ROWS = [
    {"curve": name, "seed": seed, "step": step, "value": seed + step / 10}
    for name in ("a", "b")
    for seed in range(3)
    for step in (0, 10)
]


def test_a_thin_line_for_each_seed_and_a_thick_median(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(seed_curves, "save", lambda figure, path, numbers: kept.append((figure, numbers)))
    plot_seeds(ROWS, tmp_path / "curves.svg", "accuracy")
    ((figure, numbers),) = kept
    (axis,) = figure.axes
    drawn = [(line.get_label(), list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines]
    assert [x for _, x, _ in drawn] == [[0, 10]] * 8
    assert [y for _, _, y in drawn[:4]] == [[0, 1], [1, 2], [2, 3], [1, 2]]
    assert (drawn[3][0], drawn[7][0]) == ("a", "b")
    assert axis.get_ylabel() == "accuracy"
    rows = list(csv.DictReader(numbers.splitlines()))
    assert rows[1] == {"curve": "a", "seed": "0", "step": "10", "value": "1.0"}
    assert len(rows) == len(ROWS)


def test_the_figure_and_its_numbers_are_written(tmp_path):
    plot_seeds(ROWS, tmp_path / "curves.svg", "accuracy")
    assert "<svg" in (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert (tmp_path / "curves.csv").read_text(encoding="utf-8").startswith("curve,seed,step,value\na,0,0,0.0\n")


def test_nothing_to_draw(tmp_path):
    with pytest.raises(InputError, match="rows: is empty; there is nothing to draw"):
        plot_seeds([], tmp_path / "curves.svg", "accuracy")
