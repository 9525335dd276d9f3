"""Common style of all figures: colours, line styles, vector files, and a CSV with their numbers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.files import atomic, write_whole

# Okabe and Ito's palette is safe for colour-blind readers; dashes distinguish lines without colours
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "..", "xx")  # distinguish bars without colours
SHADES = "cividis"  # colour map with increasing lightness
_STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "hf_nmt_interp",  # makes files reproducible
}


def line_styles(number: int) -> list[dict[str, Any]]:
    """Colour and dash of each line; if there are more lines than colours, they form a sequence from dark to light.

    >>> line_styles(2)[1]
    {'color': '#D55E00', 'linestyle': '--'}
    """
    if number <= len(PALETTE):
        return [{"color": c, "linestyle": d} for c, d in zip(PALETTE[:number], cycle(DASHES), strict=False)]
    from matplotlib import colormaps

    return [{"color": colormaps["viridis"](i / (number - 1)), "linestyle": "-"} for i in range(number)]


def draw_lines(axis: Any, lines: Mapping[str, Iterable[tuple[float, float]]], **look: Any) -> None:
    """Draw a line through the points (x, y) of each name."""
    for (name, points), style in zip(lines.items(), line_styles(len(lines)), strict=True):
        x, y = list(zip(*points, strict=True)) or ((), ())
        axis.plot(x, y, label=name, **style, **look)


def panels(rows: int, columns: int, size: tuple[float, float] = (3.4, 2.6), **grid: Any) -> tuple[Any, Any]:
    """A figure and its axes [rows, columns], each of this size in inches; for `grid` see `Figure.subplots`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(0.6 + size[0] * columns, 0.7 + size[1] * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **grid)
    for axis in axes.flat:
        axis.tick_params(labelsize=8)
        axis.xaxis.label.set_size(9)
        axis.yaxis.label.set_size(9)
    return figure, axes


def panel_lines(lines: int, number: int, size: tuple[float, float] = (3.4, 2.6)) -> tuple[Any, Any]:
    """A figure and its axes [lines, number], at most three per row, to fit a page."""
    columns = min(number, 3)
    rows = -(-number // columns)
    figure, grid = panels(lines * rows, columns, size)
    axes = grid.reshape(lines, rows * columns)
    for axis in axes[:, number:].flat:
        axis.remove()
    return figure, axes[:, :number]


def bars(axis: Any, groups: Sequence[tuple[str, Sequence[float | None]]], labels: Sequence[Any]) -> None:
    """Draw grouped bars: one group per label, one colour and hatch per name; None is 0."""
    width = 0.8 / len(groups)
    for number, (name, values) in enumerate(groups):
        at = [i - 0.4 + width * (number + 0.5) for i in range(len(labels))]
        look = {"color": PALETTE[number % len(PALETTE)], "hatch": HATCHES[number % len(HATCHES)], "edgecolor": "white"}
        axis.bar(at, [value or 0.0 for value in values], width * 0.95, label=name, **look)
    axis.axhline(0, color="black", linewidth=0.6)
    axis.set_xticks(range(len(labels)), labels)


def save(figure: Any, path: str | Path, numbers: str) -> None:
    """Write the figure as .svg, .pdf or .png, and its numbers, given as CSV text, to a .csv file of the same name.

    `$` and backslashes in words and names are plain characters; only tick labels of log scales are formulas.
    """
    from matplotlib import rc_context
    from matplotlib.text import Text

    scaled = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_scale() != "linear"]
    formulas = {label for axis in scaled for label in axis.get_ticklabels(which="both")}
    for text in figure.findobj(Text):
        text.set_parse_math(text in formulas)
    path = Path(path)
    dated = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix)
    try:
        with rc_context(_STYLE), atomic(path, shared=True) as part:
            figure.savefig(part, dpi=200, format=path.suffix[1:], metadata={dated: None} if dated else None)
        write_whole(path.with_suffix(".csv"), numbers, shared=True)
    except (ValueError, OSError) as error:
        remedy = "e.g. curves.svg, .pdf or .png in a folder that exists"
        raise InputError(
            "figure", str(path), f"cannot be written: {getattr(error, 'strerror', None) or error}", remedy
        ) from error


def legend_below(figure: Any, axis: Any, names: Sequence[str] | None = None) -> None:
    """Add one legend for all panels, with the lines of one panel; none for a single line."""
    lines, labels = axis.get_legend_handles_labels()
    if len(names or labels) > 1:
        figure.legend(lines, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False, fontsize=8)
