"""Curves of many training runs: a colour for each kind of run, a thin line for each seed (snell2021, figures 3, 6)."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.style import legend_below, line_styles, panels, save
from hf_nmt_interp.studies.toy_attention import runs_of
from hf_nmt_interp.text.tables import csv_text

FIELDS = ("curve", "seed", "step", "value")


def plot_seeds(rows: Sequence[dict[str, Any]], path: str | Path, label: str) -> None:
    """Plot rows with `FIELDS` against training steps; the median over seeds is a thick line.

    The rows are written to a CSV file next to the figure; `label` names the values.
    """
    if not rows:
        raise InputError("rows", None, "is empty", "there is nothing to draw")
    curves = runs_of(rows)
    figure, axes = panels(1, 1)
    figure.set_size_inches(5.4, 3.6)
    axis = axes[0, 0]
    for (name, runs), style in zip(curves.items(), line_styles(len(curves)), strict=True):
        for run in runs.values():
            axis.plot(list(run), list(run.values()), color=style["color"], linewidth=0.5, alpha=0.5)
        steps = sorted(set.intersection(*(set(run) for run in runs.values())))
        axis.plot(steps, [median(run[step] for run in runs.values()) for step in steps], label=name, **style)
    axis.set(xlabel="training step", ylabel=label)
    legend_below(figure, axis, list(curves))
    save(figure, path, csv_text(rows, FIELDS))
