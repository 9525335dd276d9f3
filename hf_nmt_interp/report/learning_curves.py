"""Curves of many training runs: a colour for each kind of run, a thin line for each seed (snell2021, figures 3, 6)."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.style import legend_below, line_styles, panels, save

FIELDS = ("curve", "seed", "step", "value")


def plot_learning(rows: Sequence[dict[str, Any]], path: str | Path, label: str) -> None:
    """Values against training steps; the median over seeds is drawn thick. The rows go into a CSV file beside it.

    Args:
        rows: with the fields curve (a name), seed, step and value.
        path: where the figure goes; its ending says the format (.svg, .pdf, .png).
        label: what the values are.
    """
    from numpy import median

    if not rows:
        raise InputError("rows: is empty; there is nothing to draw")
    names = list(dict.fromkeys(row["curve"] for row in rows))
    figure, axes = panels(1, 1)
    figure.set_size_inches(5.4, 3.6)
    axis = axes[0, 0]
    for name, style in zip(names, line_styles(len(names)), strict=True):
        runs: dict[int, dict[int, float]] = {}
        for row in rows:
            if row["curve"] == name:
                runs.setdefault(row["seed"], {})[row["step"]] = row["value"]
        for run in runs.values():
            axis.plot(list(run), list(run.values()), color=style["color"], linewidth=0.5, alpha=0.5)
        steps = sorted(set.intersection(*(set(run) for run in runs.values())))
        axis.plot(steps, [median([run[step] for run in runs.values()]) for step in steps], label=name, **style)
    axis.set(xlabel="training step", ylabel=label)
    legend_below(figure, axis, names)
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({field: row[field] for field in FIELDS} for row in rows)
    save(figure, path, text.getvalue())
