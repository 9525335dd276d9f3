"""How the cost of every method grows with tokens and width: the figure and the table of docs/performance.md.

Usage, a quarter of an hour on one core; `--draw` only redraws the figure from the CSV file:
  OMP_NUM_THREADS=1 python -m tests.benchmarks.cost_growth
"""

import argparse
import csv
import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import MarianConfig, MarianMTModel

from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.report import style
from hf_nmt_interp.studies.methods_compared import measured
from hf_nmt_interp.text.tables import csv_text
from tests.fitting import fitting
from tests.tiny_models import random_batch

FIGURE = Path(__file__).parents[2] / "docs" / "performance.png"
TOKENS, WIDTHS = (10, 25, 50, 100, 200), (256, 512, 1024)
USUAL_TOKENS, USUAL_WIDTH = 25, 256
Row = dict[str, Any]


@cache
def translator(width: int) -> MarianMTModel:
    """A random Marian of three layers with the usual proportions and a small vocabulary."""
    torch.manual_seed(0)
    heads, hidden = width // 64, 4 * width
    layers = dict.fromkeys(("encoder_layers", "decoder_layers"), 3)
    sizes = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), heads) | {"d_model": width}
    ffn = dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), hidden)
    ids = {"eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": 999, "decoder_start_token_id": 999}
    return MarianMTModel(
        MarianConfig(vocab_size=1000, max_position_embeddings=256, **layers, **sizes, **ffn, **ids)
    ).eval()


def cost(method: str, width: int, tokens: int) -> Row:
    """Processor seconds and megabytes of one sentence pair with as many tokens on either side."""
    model = fitting(method, translator(width))
    made, batch = make_method(model, method), random_batch(model, [(tokens, tokens)])
    found: Row = {"sec": float("inf")}
    for _ in range(3):
        ctypes.CDLL(None).malloc_trim(0)  # memory that was freed before does not count
        _, now = measured(lambda: made(**batch), "cpu", 1)
        found = min(found, now, key=lambda row: row["sec"])
        if now["sec"] > 0.5:
            break
    return {"method": method, "width": width, "tokens": tokens, "seconds": found["sec"], "MB": found["MB"]}


def measure() -> Iterator[Row]:
    """One row for each method and number of tokens at the usual width, and for each larger width."""
    for method in METHODS:
        cost(method, USUAL_WIDTH, TOKENS[0])  # what is done once only
        for tokens in TOKENS:
            yield cost(method, USUAL_WIDTH, tokens)
        for width in WIDTHS[1:]:
            yield cost(method, width, USUAL_TOKENS)


def slope(rows: Sequence[Row], over: str, of: str) -> float | None:
    """Least-squares slope of log cost over log size: 1 is linear, 2 quadratic; None for a single size."""
    points = [(row[over], row[of]) for row in rows if row[of] > 0]
    return None if len(points) < 2 else float(np.polyfit(*np.log(np.array(points, dtype=float)).T, 1)[0])


def split(rows: Sequence[Row], method: str) -> tuple[list[Row], list[Row]]:
    """A method's rows by tokens (from 25 on, where fixed costs matter less) and by width."""
    own = [row for row in rows if row["method"] == method]
    longer = [row for row in own if row["width"] == USUAL_WIDTH and row["tokens"] >= USUAL_TOKENS]
    return longer, [row for row in own if row["tokens"] == USUAL_TOKENS]


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of a Markdown table: cost at 25 tokens, slopes, hours for a million pairs."""
    names = "method", "seconds", "MB", "tokens: time", "tokens: memory", "width: time", "width: memory", "million"
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        tokens, widths = split(rows, method)
        usual = next(row for row in widths if row["width"] == USUAL_WIDTH)
        both = (tokens, "tokens"), (widths, "width")
        slopes = [slope(some, over, of) for some, over in both for of in ("seconds", "MB")]
        cells = [f"`{method}`", f"{usual['seconds']:.3f}", f"{usual['MB']:.0f}"]
        cells += ["" if number is None else f"{number:.1f}" for number in slopes]
        cells.append(f"{usual['seconds'] * 1e6 / 3600:,.0f} h")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(rows: Sequence[Row]) -> None:
    """Seconds and memory by tokens and by width, on logarithmic axes."""
    figure, axes = style.panels(2, 2, (3.6, 3.0))
    for at, (over, label) in enumerate((("tokens", "tokens on either side"), ("width", "width"))):
        for line, (of, unit) in enumerate((("seconds", "seconds"), ("MB", "memory (MB)"))):
            axis = axes[line][at]
            for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
                own = [row for row in rows if row["method"] == method]
                points = split(own, method)[1] if at else [row for row in own if row["width"] == USUAL_WIDTH]
                look: Any = {"color": style.PALETTE[number % 6], "linestyle": style.DASHES[number // 6]}
                x, y = ([max(row[key], 0.1 if key == "MB" else 0) for row in points] for key in (over, of))
                axis.plot(x, y, label=method, marker="osD^v<>"[number % 7], markersize=3, linewidth=1, **look)
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel=unit)
            axis.set_xticks(WIDTHS if at else TOKENS, map(str, WIDTHS if at else TOKENS))
            axis.minorticks_off()
    style.legend_below(figure, axes[0][0])
    style.save(figure, FIGURE, csv_text(rows))


def stored() -> list[Row]:
    """Rows of the CSV file beside the figure."""
    with FIGURE.with_suffix(".csv").open(encoding="utf-8") as file:
        return [
            {"method": row["method"]}
            | {name: int(row[name]) for name in ("width", "tokens")}
            | {name: float(row[name]) for name in ("seconds", "MB")}
            for row in csv.DictReader(file)
        ]


def main() -> None:
    """Measure unless told not to; draw; print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="use the numbers that are in the CSV file")
    args = parser.parse_args()
    rows = []
    for row in stored() if args.draw else measure():
        print(*row.values(), flush=True)
        rows.append(row)
    draw(rows)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
