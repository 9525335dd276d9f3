"""Calibration reports as a table and as the paper's figures, with the numbers of each figure beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_nmt_interp.analysis.calibration import CalibrationReport, Row, rows_to_csv
from hf_nmt_interp.errors import InputError

# Okabe and Ito's palette, told apart with every kind of colour vision
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "hf_nmt_interp",  # the same figure, the same file
}
FORMATS = ("svg", "pdf")


def name_of(report: CalibrationReport) -> str:
    """Short name of the model of a report."""
    return Path(str(report.about.get("model") or "model")).name


def calibration_rows(reports: Sequence[CalibrationReport]) -> list[Row]:
    """One row for each model and layer."""
    return [{"model": name_of(report), **row} for report in reports for row in report.layers]


def plot_calibration(reports: Sequence[CalibrationReport], folder: str | Path, kind: str = "svg") -> list[Path]:
    """Figures 4 to 7 and table 5 of lu2021, each with its numbers as CSV of the same name.

    Args:
        reports: of one or several models; masks against alpha need two with known alpha.
        folder: where they go; made if it is not there.
        kind: "svg" or "pdf".

    Returns:
        The files of the figures.
    """
    if kind not in FORMATS:
        raise InputError(f"kind: {kind!r} is not one of {', '.join(FORMATS)}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    layers = [row for row in calibration_rows(reports) if row["layer"] != "all"]
    bins = [{"model": name_of(report), **row} for report in reports for row in report.bins]
    figures: dict[str, tuple[list[Row], Any]] = {
        "jsd_by_layer": (_only(layers, "jsd"), _by_layer("jsd", "JSD(original, fused)")),
        "entropy_change_by_layer": (_only(layers, "entropy_change"), _by_layer("entropy_change", "entropy change")),
        "jsd_by_entropy": (bins, _by_entropy),
        "kendall_by_layer": (_only(layers, "kendall_attention", "kendall_mask"), _kendall),
    }
    if len(against := mask_means(reports)) > 1:
        figures["mask_by_alpha"] = (against, _by_alpha)
    return [_write(folder / f"{name}.{kind}", rows, draw) for name, (rows, draw) in figures.items()]


def mask_means(reports: Sequence[CalibrationReport]) -> list[Row]:
    """Mean mask of each model whose alpha is known, by alpha (figure 4)."""
    known = [report for report in reports if report.about.get("alpha") is not None]
    rows = [{"model": name_of(r), "alpha": r.about["alpha"], "mask_mean": r.mask_mean} for r in known]
    return sorted(rows, key=lambda row: row["alpha"])


def _only(rows: Sequence[Row], *names: str) -> list[Row]:
    return [{name: row[name] for name in ("model", "layer", *names)} for row in rows]


def _write(path: Path, rows: list[Row], draw: Any) -> Path:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    path.with_suffix(".csv").write_text(rows_to_csv(rows), encoding="utf-8")
    with rc_context(_STYLE):
        figure = Figure(figsize=(4.5, 2.8), layout="constrained")
        axis = figure.subplots()
        draw(axis, rows)
        lines, names = axis.get_legend_handles_labels()
        if len(names) > 1:
            figure.legend(lines, names, loc="outside lower center", ncols=3, fontsize=7)
        figure.savefig(path, metadata={"Date" if path.suffix == ".svg" else "CreationDate": None})
    return path


def _bars(axis: Any, groups: list[tuple[str, list[float | None]]], labels: Sequence[Any]) -> None:
    """Bars side by side: one group a label, one colour a name."""
    width = 0.8 / len(groups)
    for number, (name, values) in enumerate(groups):
        at = [i - 0.4 + width * (number + 0.5) for i in range(len(labels))]
        heights = [0.0 if value is None else value for value in values]
        axis.bar(at, heights, width * 0.95, color=_COLOURS[number % len(_COLOURS)], label=name)
    axis.axhline(0, color="black", linewidth=0.6)
    axis.set_xticks(range(len(labels)), labels)


def _grouped(rows: Sequence[Row], name: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row[name]), []).append(row)
    return found


def _layers(rows: Sequence[Row]) -> list[int]:
    return [number + 1 for number in sorted({row["layer"] for row in rows})]  # counted from 1, as in the paper


def _by_layer(name: str, label: str) -> Any:
    def draw(axis: Any, rows: list[Row]) -> None:
        groups = [(model, [row[name] for row in found]) for model, found in _grouped(rows, "model").items()]
        _bars(axis, groups, _layers(rows))
        axis.set(xlabel="decoder layer", ylabel=label)

    return draw


def _kendall(axis: Any, rows: list[Row]) -> None:
    groups = [
        (f"{model}, {name.removeprefix('kendall_')}", [row[name] for row in found])
        for model, found in _grouped(rows, "model").items()
        for name in ("kendall_attention", "kendall_mask")
    ]
    _bars(axis, groups, _layers(rows))
    axis.set(xlabel="decoder layer", ylabel="Kendall tau with gradients")


def _by_entropy(axis: Any, rows: list[Row]) -> None:
    """One line for each model and layer."""
    models = _grouped(rows, "model")
    for style, (model, found) in zip(("-", "--", ":", "-.") * len(models), models.items(), strict=False):
        for number, (layer, bins) in enumerate(_grouped(found, "layer").items()):
            known = [row for row in bins if row["jsd"] is not None]
            values = [row["jsd"] for row in known]
            colour = _COLOURS[number % len(_COLOURS)]
            label = f"{model}, layer {int(layer) + 1}"
            axis.plot([row["low"] for row in known], values, style, marker=".", color=colour, label=label)
    axis.set(xlabel="entropy of the original weights, from (nats)", ylabel="JSD(original, fused)", ylim=(0, None))
    axis.set_xticks(sorted({row["low"] for row in rows}))


def _by_alpha(axis: Any, rows: list[Row]) -> None:
    axis.plot([row["alpha"] for row in rows], [row["mask_mean"] for row in rows], marker="o", color=_COLOURS[0])
    axis.set(xlabel="alpha", ylabel="mean mask", ylim=(0, 1))
