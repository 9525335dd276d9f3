"""How well heads find dependency relations, and where the relations are (voita2019, table 1, figures 3 and 4)."""

from pathlib import Path

from rich.table import Table

from hf_nmt_interp.analysis.heads import HeadReport
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.style import bars, draw_lines, panels, save
from hf_nmt_interp.report.terminal import table
from hf_nmt_interp.text.tables import csv_text

_WIDEST = 10  # relative positions drawn on each side


def syntax_table(report: HeadReport) -> Table:
    """The encoder's best head for each relation and direction, its accuracy, and that of the best fixed position."""
    rows = [row | {name: f"{row[name]:.0%}" for name in ("accuracy", "baseline")} for row in report.syntax()]
    return table(rows)


def plot_relations(report: HeadReport, path: str | Path) -> None:
    """Plot where dependents are relative to their heads, and the best head of each relation against the baseline.

    Args:
        report: a report of `head_report` with trees.
        path: path of the figure; its extension sets the format (.png, .svg, .pdf).
    """
    rows, dependents = report.syntax(), report.about.get("dependents")
    if not rows or not dependents:
        raise InputError("report", None, "has no syntactic scores", "make it with trees")
    figure, axes = panels(1, 2, (4.2, 3.0))
    left, right = axes[0]
    lines, numbers = {}, []
    for name, counts in dependents.items():
        shares = {int(offset): count / sum(counts.values()) for offset, count in counts.items()}
        numbers += [{"relation": name, "position": offset, "share": share} for offset, share in shares.items()]
        lines[name] = [(offset, shares.get(offset, 0.0)) for offset in range(-_WIDEST, _WIDEST + 1)]
    draw_lines(left, lines, marker=".")
    left.set(xlabel="position of the dependent relative to its head", ylabel="share of the relation's pairs")
    left.set_xticks(range(-_WIDEST, _WIDEST + 1, 2))
    left.legend(frameon=False, fontsize=7)
    bars(
        right,
        [(name, [row[name] for row in rows]) for name in ("accuracy", "baseline")],
        [_label(row) for row in rows],
    )
    right.set_xticks(range(len(rows)), [_label(row) for row in rows], rotation=45, ha="right")
    right.set_ylabel("accuracy of the best head")
    right.legend(frameon=False, fontsize=7)
    save(figure, path, csv_text(numbers) + "\n" + csv_text(rows))


def _label(row: dict) -> str:
    return f"{row['relation']} {row['direction'].replace('_', ' ')}"
