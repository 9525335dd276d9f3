"""One look for all figures of curves: colours, line styles, vector files, and their numbers as CSV beside them."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError

# Okabe and Ito's palette, told apart with every kind of colour vision; dashes tell lines apart without colours
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":")


def line_styles(number: int) -> list[dict[str, Any]]:
    """Colour and dash of each line; more lines than colours are taken for a sequence, from dark to light.

    >>> line_styles(2)[1]
    {'color': '#D55E00', 'linestyle': '--'}
    """
    if number <= len(PALETTE):
        return [{"color": c, "linestyle": d} for c, d in zip(PALETTE[:number], cycle(DASHES), strict=False)]
    from matplotlib import colormaps

    return [{"color": colormaps["viridis"](i / (number - 1)), "linestyle": "-"} for i in range(number)]


def panels(rows: int, columns: int) -> tuple[Any, Any]:
    """A figure and its axes [rows, columns]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.6 + 3.4 * columns, 0.7 + 2.6 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Any, path: str | Path, numbers: str) -> None:
    """Write the figure, and its numbers under the same name with the ending .csv.

    Args:
        figure: of matplotlib.
        path: its ending says the format: .svg or .pdf (vectors), .png.
        numbers: CSV text.
    """
    path = Path(path)
    try:
        figure.savefig(path, dpi=200)
    except (ValueError, OSError) as error:
        raise InputError(f"figure: {path}: {error}; e.g. curves.svg, .pdf or .png in a folder that exists") from error
    path.with_suffix(".csv").write_text(numbers, encoding="utf-8")


def legend_below(figure: Any, axis: Any, names: Sequence[str]) -> None:
    """One legend for all panels; none for a single line."""
    if len(names) > 1:
        lines, labels = axis.get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower center", ncols=min(len(names), 5), frameon=False, fontsize=8)
