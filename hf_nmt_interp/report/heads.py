"""Head reports and the history of gates as a terminal table and as figures."""

import csv
from collections import defaultdict
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from hf_nmt_interp.analysis.heads import HeadReport
from hf_nmt_interp.analysis.roles import HEAD_SCORES, Row, short_role
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.kinds import KINDS
from hf_nmt_interp.report.style import PALETTE, SHADES, draw_lines, panels, save
from hf_nmt_interp.report.terminal import table

NO_ROLE = "none"


def role_colours() -> dict[str, str]:
    """A colour for each role, and for heads without one; text is readable on all of them."""
    roles = [name for name, score in HEAD_SCORES.items() if score.has_roles]
    return dict(zip(roles, cycle(reversed(PALETTE)), strict=False)) | {NO_ROLE: "#EEEEEE"}


def head_table(report: HeadReport) -> Table:
    """One line per head, named by kind, layer and number, sorted by relevance in each layer."""
    return table([_line(row) for row in sorted(report.rows, key=_order)])


def _order(row: Row) -> tuple[int, int, float, int]:
    return KINDS.index(row["kind"]), row["layer"], -(row["relevance"] or 0), row["head"]


def _line(row: Row) -> dict[str, Any]:
    """The most important scores of a head, short enough for a terminal."""
    relevance = "" if row["relevance"] is None else f"{row['relevance']:.0%}"
    line = {"head": f"{row['kind']} {row['layer']}.{row['head']}", "relev.": relevance}
    for score in HEAD_SCORES.values():
        line |= score.cells(row)
    return line | {"roles": "; ".join(map(short_role, row["roles"]))}


def plot_heads(report: HeadReport, path: str | Path, kind: str = "encoder") -> None:
    """Plot relevance, confidence and roles of the heads of a kind, most relevant first (voita2019, figure 1)."""
    layers: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(report.of_kind(kind), key=_order):
        layers[row["layer"]].append(row)
    height, width = max(layers) + 1, max(map(len, layers.values()))

    from matplotlib.patches import Patch, Rectangle

    size = 0.6 + 0.4 * max(width, 4), 0.8 + 0.55 * height
    figure, grid = panels(1, 3, size, sharey=True, width_ratios=[1, 1, 2])
    axes = grid[0]
    for axis, name in zip(axes, ("relevance", "confidence"), strict=False):
        values = np.full((height, width), np.nan)
        for layer, heads in layers.items():
            values[layer, : len(heads)] = [np.nan if row[name] is None else row[name] for row in heads]
        image = axis.imshow(values, cmap=SHADES, vmin=0, aspect="auto", interpolation="nearest")
        figure.colorbar(image, ax=axis, format="{x:.0%}").ax.tick_params(labelsize=8)
        axis.set_title(name, fontsize=10)
    for layer, heads in layers.items():
        for column, row in enumerate(heads):
            _cell(axes[2], column, layer, row, Rectangle)
    axes[2].set_title("roles", fontsize=10)
    patches = [Patch(facecolor=colour, edgecolor="#999999", label=role) for role, colour in role_colours().items()]
    figure.legend(handles=patches, loc="outside lower right", ncols=len(patches), frameon=False, fontsize=8)
    for axis in axes:
        axis.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), yticks=range(height), xticks=[])
        axis.set_xlabel("heads, by relevance")
    axes[0].set_ylabel(f"{kind} layer")
    save(figure, path, report.to_csv())


def _cell(axis: Any, column: int, layer: int, row: Row, rectangle: Any) -> None:
    """Draw one head: its number, a stripe for each of its roles, and their details as text."""
    roles, colours = row["roles"], role_colours()
    kinds = list(dict.fromkeys(role.partition(":")[0] for role in roles)) or [NO_ROLE]
    share = 0.94 / len(kinds)
    for i, kind in enumerate(kinds):
        corner, colour = (column - 0.47 + i * share, layer - 0.47), colours.get(kind, colours[NO_ROLE])
        axis.add_patch(rectangle(corner, share, 0.94, facecolor=colour, edgecolor="none"))
    text = "\n".join(map(short_role, roles))
    axis.text(column, layer, text, ha="center", va="center", fontsize=max(3, 8 - len(roles)))
    axis.text(column - 0.44, layer + 0.43, row["head"], ha="left", va="bottom", fontsize=7)


def plot_gate_history(history: str | Path, path: str | Path) -> None:
    """Plot the expected number of open heads of each kind and layer over the steps of an `L0Trainer`'s `gates.csv`."""
    try:
        text = Path(history).read_text(encoding="utf-8")
        rows = csv.DictReader(text.splitlines())
        gates = [(row["kind"], int(row["layer"]), int(row["step"]), float(row["open"])) for row in rows]
        gates.sort(key=lambda gate: (KINDS.index(gate[0]), gate[1]))
    except (OSError, KeyError, ValueError) as error:
        raise InputError("history", str(history), f"is not a gates.csv of L0Trainer ({error!r})") from error
    kinds = list(dict.fromkeys(kind for kind, *_ in gates))
    figure, axes = panels(1, 1 + len(kinds), (2.6, 2.4))
    _open_heads(axes[0, 0], [(kind, *gate) for kind, _, *gate in gates])
    for axis, kind in zip(axes[0, 1:], kinds, strict=True):
        _open_heads(axis, [(f"layer {layer}", *gate) for of, layer, *gate in gates if of == kind])
        axis.set_title(kind, fontsize=9)
    axes[0, 0].set_ylabel("expected open heads")
    save(figure, path, text)


def _open_heads(axis: Any, gates: list[Any]) -> None:
    """Draw a line for each name in gates (name, step, open): their sum at each step."""
    lines: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for name, step, is_open in gates:
        lines[name][step] += is_open
    draw_lines(axis, {name: line.items() for name, line in lines.items()})
    axis.set(xlabel="step", ylim=(0, None))
    axis.legend(frameon=False, fontsize=7)
