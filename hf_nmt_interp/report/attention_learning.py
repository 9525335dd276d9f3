"""How attention learns: the row of table 2 beside the paper's, and curves over training (snell2021)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_nmt_interp.errors import check_choice
from hf_nmt_interp.report.style import draw_lines, panels, save
from hf_nmt_interp.studies.attention_learning import MEASURES, RUNS, Row, learning_curves, read_snapshots, table_row
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.text.tables import csv_text

_COLUMNS = [
    *("A(alpha,beta_uf)", "A(beta_uf,beta_px)", "A(delta,beta_uf)", "A(alpha,beta)", "A(random)"),
    *("xi(alpha,beta_uf)", "xi(alpha,beta)", "xi*"),
]
# table 2 of the paper
PAPER: dict[str, tuple[int, ...]] = {
    "IMDB": (53, 82, 62, 60, 5, 87, 87, 90),
    "AG News": (39, 55, 43, 48, 6, 94, 95, 96),
    "20 NG": (65, 41, 65, 63, 5, 91, 85, 94),
    "SST": (20, 34, 22, 25, 8, 78, 82, 84),
    "Multi30k": (31, 34, 27, 49, 7, 43, 49, 66),
    "IWSLT14": (36, 39, 28, 55, 7, 36, 44, 67),
    "News It-Pt": (29, 39, 25, 52, 6, 22, 25, 55),
}


def write_learning(folder: str | Path, paper: str | None = None) -> str:
    """Write row, curves and figure of all snapshots in a study's folder; return the table, as of `learning_text`."""
    runs = {name: read_snapshots(Path(folder, name)) for name in RUNS}
    curves = {measure: learning_curves(runs, measure) for measure in MEASURES}
    found = {measure: table_row(rows) for measure, rows in curves.items()}
    write_whole(Path(folder, "row.csv"), csv_text([{"measure": name} | row for name, row in found.items()]))
    plot_agreement(curves["agreement"], Path(folder, "curves.svg"))
    return learning_text({"A": found["agreement"], "tau": found["kendall_tau"]}, paper)


def learning_text(found: Mapping[str, Row], paper: str | None = None) -> str:
    """The table for a terminal of 80 columns: rows of `table_row` by name, and the paper's of one of its data sets."""
    rows = learning_rows(found, paper)
    columns = [[name, *(row[name] for row in rows)] for name in rows[0]]
    padded = [[cell.rjust(max(map(len, column))) for cell in column] for column in columns]
    return "\n".join(map("  ".join, zip(*padded, strict=True)))


def learning_rows(found: Mapping[str, Row], paper: str | None = None) -> list[dict[str, str]]:
    """Rows of text for `learning_text`."""

    def text(row: Row, name: str) -> str:
        star = "*" if name in row["starred"].split() else ""
        return "" if row[name] is None else f"{row[name]:.1f}{star}"

    rows = [{"": name, **{_symbols(c): text(row, c) for c in _COLUMNS}} for name, row in found.items()]
    if paper is not None:
        check_choice("paper", paper, PAPER, "these are in table 2")
        rows.append({"": "paper", **dict(zip(map(_symbols, _COLUMNS), map(str, PAPER[paper]), strict=True))})
    return rows


def plot_agreement(curves: Sequence[Row], path: str | Path) -> None:
    """Agreements and performance of `learning_curves` over training steps; their numbers go to a CSV beside it."""
    names = list(dict.fromkeys(row["statistic"] for row in curves))
    levels = ("A(random)", "A(alpha,beta)")
    agreements = {name: _symbols(name) for name in names if name.startswith("A(") and name not in levels}
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
        if row["statistic"] in levels:
            axes[0, 0].axhline(100 * row["value"], color="#999999", linewidth=0.8, linestyle=":")
            axes[0, 0].annotate(_symbols(row["statistic"]), (0, 100 * row["value"]), fontsize=7, va="bottom")
    save(figure, path, csv_text(curves))


def _symbols(name: str) -> str:
    """Greek letters; the text of a figure, and narrow columns.

    >>> _symbols("A(alpha,beta_uf)")
    'A(α,βuf)'
    """
    words = {"alpha_2": "α₂", "alpha": "α", "beta_": "β", "beta": "β", "delta": "Δ", "xi": "ξ", "A(random)": "Â"}
    for word, symbol in words.items():
        name = name.replace(word, symbol)
    return name
