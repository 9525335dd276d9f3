"""Head reports and the history of gates as a terminal table and as figures."""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from hf_nmt_interp.analysis.heads import KINDS, HeadReport
from hf_nmt_interp.analysis.roles import DIRECTIONS, RELATIONS, SCORES, Row
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.terminal import table

# Okabe and Ito's palette, told apart with every kind of colour vision; roles are also written into the cells
_PALETTE = ("#CC79A7", "#009E73", "#E69F00", "#56B4E9", "#D55E00", "#F0E442")
COLOURS = dict(zip([role for role in SCORES if role != "confidence"], _PALETTE, strict=False))
NO_ROLE = "#EEEEEE"
_KIND_COLOURS = {"encoder": "#0072B2", "decoder": "#D55E00", "cross": "#009E73"}
_SHORT = {"_to_head": "→head", "_to_dependent": "→dep", "rare words": "rare", "syntactic: ": "", "positional: ": ""}


def head_table(report: HeadReport) -> Table:
    """One line a head, named by kind, layer and number; in each layer the most relevant first."""
    return table([_line(row) for row in sorted(report.rows, key=_order)])


def _order(row: Row) -> tuple[int, int, float, int]:
    return KINDS.index(row["kind"]), row["layer"], -(row["relevance"] or 0), row["head"]


def _line(row: Row) -> dict[str, Any]:
    """The scores of a head that say most, short enough for a terminal."""

    def percent(name: str) -> str:
        return "" if row.get(name) is None else f"{row[name]:.0%}"

    relations = [
        (row[f"{name}_{direction}"] / max(row[f"{name}_baseline"], 1e-9), name, direction)
        for name in RELATIONS
        if row.get(f"{name}_baseline") is not None
        for direction in DIRECTIONS
    ]
    best = ""
    if relations:
        _, name, direction = max(relations)
        best = f"{_short(f'{name}_{direction}')} {row[f'{name}_{direction}']:.0%}/{row[f'{name}_baseline']:.0%}"
    position = "" if row.get("position") is None else f"{row['position']:+d} {percent('position_share')}"
    head = {"head": f"{row['kind']} {row['layer']}.{row['head']}"}
    scores = {"relev.": percent("relevance"), "conf.": percent("confidence"), "position": position}
    roles = "; ".join(map(_short, row["roles"]))
    return {**head, **scores, "best relation": best, "rare": percent("two_rarest"), "roles": roles}


def _short(text: str) -> str:
    for long, short in _SHORT.items():
        text = text.replace(long, short)
    return text


def plot_heads(report: HeadReport, path: str | Path, kind: str = "encoder") -> None:
    """Relevance, confidence and roles of a kind's heads, in each layer the most relevant left (voita2019, figure 1).

    Args:
        report: of `head_report`.
        path: where the figure goes; its ending says the format (.png, .svg, .pdf).
        kind: "encoder", "decoder" or "cross".
    """
    rows = sorted((row for row in report.rows if row["kind"] == kind), key=_order)
    if not rows:
        raise InputError(f"kind: the report has no heads of kind {kind!r}")
    layers: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        layers[row["layer"]].append(row)
    height, width = max(layers) + 1, max(map(len, layers.values()))

    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    figure = Figure(figsize=(2.5 + 1.2 * max(width, 4), 1.5 + 0.55 * height), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True, width_ratios=[1, 1, 2])
    for axis, name in zip(axes, ("relevance", "confidence"), strict=False):
        grid = np.full((height, width), np.nan)
        for layer, heads in layers.items():
            grid[layer, : len(heads)] = [np.nan if row[name] is None else row[name] for row in heads]
        image = axis.imshow(grid, cmap="cividis", vmin=0, aspect="auto", interpolation="nearest")
        figure.colorbar(image, ax=axis, format="{x:.0%}")
        axis.set_title(name)
    for layer, heads in layers.items():
        for column, row in enumerate(heads):
            _cell(axes[2], column, layer, row, Rectangle)
    axes[2].set_title("roles")
    axes[2].legend(
        handles=[Patch(color=colour, label=role) for role, colour in COLOURS.items()],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        ncols=len(COLOURS),
        frameon=False,
        fontsize=8,
    )
    for axis in axes:
        axis.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), yticks=range(height), xticks=[])
        axis.set_xlabel("heads, by relevance")
    axes[0].set_ylabel(f"{kind} layer")
    figure.savefig(Path(path), dpi=200)


def _cell(axis: Any, column: int, layer: int, row: Row, rectangle: Any) -> None:
    """One head: its number, a stripe for each kind of role it has, and their details as text."""
    roles = row["roles"]
    kinds = list(dict.fromkeys(role.partition(":")[0] for role in roles))
    for i, kind in enumerate(kinds or [""]):
        share = 0.94 / max(len(kinds), 1)
        corner = column - 0.47 + i * share, layer - 0.47
        axis.add_patch(rectangle(corner, share, 0.94, facecolor=COLOURS.get(kind, NO_ROLE), edgecolor="none"))
    text = "\n".join(_short(role) for role in roles)
    axis.text(column, layer, text, ha="center", va="center", fontsize=max(3, 8 - len(roles)))
    axis.text(column - 0.44, layer + 0.43, row["head"], ha="left", va="bottom", fontsize=5)


def plot_gate_history(history: str | Path, path: str | Path) -> None:
    """Expected number of open heads of each kind over the steps of a training run.

    Args:
        history: the `gates.csv` that `L0Trainer` writes.
        path: where the figure goes; its ending says the format.
    """
    from matplotlib.figure import Figure

    totals: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    with Path(history).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            totals[row["kind"]][int(row["step"])] += float(row["open"])
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axis = figure.subplots()
    for style, (kind, heads) in zip(("-", "--", ":"), totals.items(), strict=False):
        axis.plot(list(heads), list(heads.values()), style, color=_KIND_COLOURS[kind], label=kind)
    axis.set(xlabel="step", ylabel="expected open heads", ylim=(0, None))
    axis.legend(frameon=False)
    figure.savefig(Path(path), dpi=200)
