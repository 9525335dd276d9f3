"""Calibration reports as a table and as the paper's figures, with the numbers of each figure next to it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_nmt_interp.analysis.calibration import CalibrationReport, Row
from hf_nmt_interp.errors import check_choice
from hf_nmt_interp.report.style import DASHES, PALETTE, bars, legend_below, line_styles, panels, save
from hf_nmt_interp.text.tables import csv_text

FIGURE_FORMATS = ("svg", "pdf")
_TAUS = {"kendall_attention": ", attention", "kendall_mask": ", mask"}


def name_of(report: CalibrationReport) -> str:
    """Short name of the model of a report."""
    return Path(str(report.about.get("model") or "model")).name


def calibration_rows(reports: Sequence[CalibrationReport]) -> list[Row]:
    """One row for each model and layer."""
    return [{"model": name_of(report), **row} for report in reports for row in report.layers]


def plot_calibration(reports: Sequence[CalibrationReport], folder: str | Path, kind: str = "svg") -> list[Path]:
    """Write figures 2 and 4 to 7 and table 5 of lu2021 to a folder, each with its numbers in a CSV file.

    Masks by alpha need two models with known alpha, and include BLEU if it is in `about`. Plain translators are only
    shown in the correlation with gradients.
    """
    check_choice("kind", kind, FIGURE_FORMATS)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    layers = [row for row in calibration_rows(reports) if row["layer"] != "all"]
    bins = [{"model": name_of(report), **row} for report in reports for row in report.bins]
    calibrated = [row for row in layers if row["jsd"] is not None]
    figures: dict[str, tuple[list[Row], Any]] = {
        "jsd_by_layer": _by_layer(calibrated, "JSD(original, fused)", {"jsd": ""}),
        "entropy_change_by_layer": _by_layer(calibrated, "entropy change", {"entropy_change": ""}),
        "jsd_by_entropy": (bins, _by_entropy),
    }
    figures = figures if calibrated else {}
    figures["kendall_by_layer"] = _by_layer(layers, "Kendall tau with gradients", _TAUS)
    if len(against := mask_means(reports)) > 1:
        figures["mask_by_alpha"] = (against, _by_alpha)
    for name, (rows, draw) in figures.items():
        figure, axes = panels(1, 1, (4.0, 2.4))
        draw(axes[0, 0], rows)
        legend_below(figure, axes[0, 0])
        save(figure, folder / f"{name}.{kind}", csv_text(rows))
    return [folder / f"{name}.{kind}" for name in figures]


def mask_means(reports: Sequence[CalibrationReport]) -> list[Row]:
    """Mean mask, and BLEU if `about` has it, of each model whose alpha is known, by alpha (figure 4)."""
    known = [report for report in reports if report.about.get("alpha") is not None]
    rows = [{"model": name_of(r), "alpha": r.about["alpha"], "mask_mean": r.mask_mean} for r in known]
    rows = [row | ({"bleu": r.about["bleu"]} if "bleu" in r.about else {}) for row, r in zip(rows, known, strict=True)]
    return sorted(rows, key=lambda row: row["alpha"])


def _grouped(rows: Sequence[Row], name: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row[name]), []).append(row)
    return found


def _by_layer(layers: Sequence[Row], label: str, names: dict[str, str]) -> tuple[list[Row], Any]:
    """Rows of these columns, and the function that draws them as bars, one per model and column."""

    def draw(axis: Any, rows: list[Row]) -> None:
        models = _grouped(rows, "model").items()
        groups = [(model + more, [row[name] for row in own]) for model, own in models for name, more in names.items()]
        groups = [(name, values) for name, values in groups if any(value is not None for value in values)]
        bars(axis, groups, [1 + layer for layer in sorted({row["layer"] for row in rows})])  # from 1, as in the paper
        axis.set(xlabel="decoder layer", ylabel=label)

    columns = ["model", "layer", *names, *(f"{name}_ci" for name in names)]
    return [{name: row.get(name) for name in columns} for row in layers], draw


def _by_entropy(axis: Any, rows: list[Row]) -> None:
    """One line for each model and layer."""
    models = _grouped(rows, "model")
    for dash, (model, found) in zip(DASHES * len(models), models.items(), strict=False):
        layers = _grouped(found, "layer")
        for style, (layer, bins) in zip(line_styles(len(layers)), layers.items(), strict=True):
            known = [row for row in bins if row["jsd"] is not None]
            look = style | {"linestyle": dash if len(models) > 1 else style["linestyle"], "marker": "."}
            label = f"{model}, layer {int(layer) + 1}"
            axis.plot([row["low"] for row in known], [row["jsd"] for row in known], label=label, **look)
    axis.set(xlabel="entropy of the original weights, from (nats)", ylabel="JSD(original, fused)", ylim=(0, None))
    axis.set_xticks(sorted({row["low"] for row in rows}))


def _by_alpha(axis: Any, rows: list[Row]) -> None:
    line = [(row["alpha"], row["mask_mean"]) for row in rows]
    axis.plot(*zip(*line, strict=True), marker="o", color=PALETTE[0], label="mean mask")
    axis.set(xlabel="alpha", ylabel="mean mask", ylim=(0, 1))
    if min(alpha for alpha, _ in line) > 0:
        axis.set_xscale("log")
    if scored := [(row["alpha"], row["bleu"]) for row in rows if "bleu" in row]:
        other = axis.twinx()
        other.plot(*zip(*scored, strict=True), marker="s", color=PALETTE[1], linestyle=DASHES[1])
        axis.plot([], [], marker="s", color=PALETTE[1], linestyle=DASHES[1], label="BLEU")
        other.set_ylabel("BLEU", fontsize=9)
        other.tick_params(labelsize=8)
