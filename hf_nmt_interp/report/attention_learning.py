"""How attention learns: the rows of tables 3 to 8 next to the paper's, and curves over training (snell2021)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_nmt_interp.errors import check_choice
from hf_nmt_interp.report.snell_tables import DATA_SETS, TABLES, paper_row
from hf_nmt_interp.report.style import draw_lines, panels, save
from hf_nmt_interp.studies.attention_learning import (
    LEVELS,
    MEASURES,
    PAIRS,
    PERFORMANCES,
    Row,
    learning_curves,
    read_runs,
    table_row,
)
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.text.tables import csv_text

# columns of the two halves of table 5; the last three of the first half are of appendix A.1, tables 10 and 11
_MORE = ("A(alpha_opt,beta)", "A(alpha,alpha_fr)", "A(beta_uf,beta_log)")
_HALVES = (
    [*(f"A({pair})" for pair in PAIRS), "A(random)", *_MORE],
    [*(f"xi({pair})" for pair in PAIRS), "xi*"],
)
_SHORT = {"agreement": "A", "kendall_tau": "tau"}
_MARGIN = "±"  # heading of rows of half intervals


def write_learning(
    folder: str | Path, paper: str | None = None, performance: str = "accuracy", on: Sequence[str] = ("valid",)
) -> str:
    """Write rows, curves and figure of all snapshots in a study's folder; return the tables of `learning_text`.

    Args:
        folder: folder of the study.
        paper: dataset of the paper whose rows are shown for comparison.
        performance: metric for xi; "accuracy", or "bleu" for two tables, one with each metric.
        on: sets whose snapshots are read; "train" has separate files, whose names end in `-train`.
    """
    check_choice("performance", performance, PERFORMANCES)
    texts, metrics = [], dict.fromkeys((performance, "accuracy"))  # accuracy is always measured
    for name in on:
        runs, ending = read_runs(folder, name), "" if name == "valid" else f"-{name}"
        curves = {measure: learning_curves(runs, measure) for measure in MEASURES}
        cells = []
        for metric in metrics:
            found = {measure: table_row(rows, metric) for measure, rows in curves.items()}
            cells += [{"measure": measure, "performance": metric} | row for measure, row in found.items()]
            if title := [f"on {name}"] * (len(on) > 1) + [f"ξ by {metric}"] * (len(metrics) > 1):
                texts.append(f"{', '.join(title)}:")
            texts.append(learning_text(found, paper, metric, name))
        write_whole(Path(folder, f"row{ending}.csv"), csv_text(cells))
        plot_agreement(curves["agreement"], Path(folder, f"curves{ending}.svg"))
    return "\n\n".join(texts)


def learning_text(
    found: Mapping[str, Row], paper: str | None = None, performance: str = "accuracy", on: str = "valid"
) -> str:
    """The table for a terminal of 80 columns, in two halves: rows of `table_row` by measure, with the paper's."""
    rows, halves = learning_rows(found, paper, performance, on), []
    for half in _HALVES:
        names = [name for name in map(_symbols, half) if any(row.get(name) for row in rows)]
        shown = [row for row in rows if row[""] != _MARGIN or any(row.get(name) for name in names)]
        halves.append(_aligned([{name: row.get(name, "") for name in ("", *names)} for row in shown]))
    return "\n\n".join(halves)


def _aligned(rows: Sequence[dict[str, str]]) -> str:
    columns = [[name, *(row[name] for row in rows)] for name in rows[0]]
    padded = [[cell.rjust(max(map(len, column))) for cell in column] for column in columns]
    return "\n".join(map("  ".join, zip(*padded, strict=True)))


def learning_rows(
    found: Mapping[str, Row], paper: str | None = None, performance: str = "accuracy", on: str = "valid"
) -> list[dict[str, str]]:
    """Rows of text for `learning_text`; a column that is empty in all our rows is left empty in the paper's too."""
    if paper is not None:
        check_choice("paper", paper, DATA_SETS, "these are in table 5")

    def text(row: Row, name: str) -> str:
        star = "*" if name in row["starred"].split() else ""
        return "" if row[name] is None else f"{row[name]:.1f}{star}"

    rows = []
    for measure, row in found.items():
        rows.append({"": _SHORT[measure], **{_symbols(c): text(row, c) for half in _HALVES for c in half}})
        margins = {_symbols(c): row[name] for c in _HALVES[0] if row.get(name := f"margin({c[2:]}") is not None}
        if margins:
            rows.append({"": _MARGIN, **{name: f"{margin:.1f}" for name, margin in margins.items()}})
        number = TABLES.get((measure, performance, on))
        if paper is not None and number and (cells := paper_row(number, paper)):
            shown = {_symbols(c): cell for c, cell in cells.items() if row[c] is not None}
            rows.append({"": f"table {number}", **shown})
    return rows


def plot_agreement(curves: Sequence[Row], path: str | Path) -> None:
    """Plot agreements and performance of `learning_curves` over training steps; the numbers are saved as CSV."""
    names = list(dict.fromkeys(row["statistic"] for row in curves))
    agreements = {name: _symbols(name) for name in names if name.startswith("A(") and name not in LEVELS}
    performances = {name: name[12:].rstrip(")") for name in names if name.startswith("performance(")}
    figure, axes = panels(1, 2)
    shown = zip(axes[0], (agreements, performances), ("agreement, %", "predicted right, %"), strict=True)
    for axis, labels, unit in shown:
        points = {name: [(r["step"], 100 * r["value"]) for r in curves if r["statistic"] == name] for name in labels}
        draw_lines(axis, {labels[name]: line for name, line in points.items()}, marker=".")
        axis.set_xscale("symlog", linthresh=50)
        axis.set(xlabel="training steps", ylabel=unit)
        axis.legend(frameon=False, fontsize=7)
    for row in curves:
        if row["statistic"] in LEVELS:
            axes[0, 0].axhline(100 * row["value"], color="#999999", linewidth=0.8, linestyle=":")
            axes[0, 0].annotate(_symbols(row["statistic"]), (0, 100 * row["value"]), fontsize=7, va="bottom")
    save(figure, path, csv_text(curves))


def _symbols(name: str) -> str:
    """Greek letters for names, in figures and narrow columns.

    >>> _symbols("A(alpha,beta_uf)")
    'A(α,βuf)'
    """
    words = {"alpha_2": "α₂", "alpha_": "α", "alpha": "α", "beta_": "β", "beta": "β", "delta": "Δ", "xi": "ξ"}
    for word, symbol in (words | {"A(random)": "Â"}).items():
        name = name.replace(word, symbol)
    return name
