"""Alignments: the rows of `AlignmentTable` as Markdown tables, sentence pairs as matrices against gold links."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hf_nmt_interp.analysis.alignment import WordAlignment
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.style import PALETTE, panels, save
from hf_nmt_interp.text.pharaoh import Links
from hf_nmt_interp.text.tables import csv_text

Row = dict[str, Any]
_BROKEN: Any = (0, (2, 2))  # a line's dashes and gaps

_AS_PUBLISHED = ", as published: subwords linked by argmax, entropy of subwords with EOS, Li by abs(psi)"
_TITLES = {
    "force": "Force decoding, against the gold links",
    "free": "Free decoding, against {reference}",
    "force noise": "SmoothGrad by noise, force decoding",
    "free noise": "SmoothGrad by noise, free decoding",
}


def alignment_markdown(rows: Sequence[Row]) -> str:
    """A Markdown table for each kind of row: one line per method, one column per alignment, then the forward entropy.

    >>> rates = {"way": "default", "reference": "gold", "aer": 0.25, "precision": 1.0, "recall": 0.5, "aer_ci": 0.02}
    >>> row = {"table": "force", "method": "grad", "alignment": "forward", "pairs": 9, **rates, "entropy": 1.234}
    >>> print(alignment_markdown([row]))
    Force decoding, against the gold links (9 pairs): AER ± half its 95 % interval over pairs (precision, recall) in %
    <BLANKLINE>
    | method | forward | entropy |
    |---|---|---|
    | grad | 25.0 ± 2.0 (100.0, 50.0) | 1.23 |
    <BLANKLINE>
    """
    found = []
    for kind, title in _TITLES.items():
        for way, ending in (("default", ""), ("published", _AS_PUBLISHED)):
            if chosen := [row for row in rows if (row["table"], row["way"]) == (kind, way)]:
                head = f"{title.format(**chosen[0])} ({chosen[0]['pairs']} pairs){ending}: "
                head += "AER ± half its 95 % interval over pairs (precision, recall) in %"
                found.append(f"{head}\n\n{_table(chosen)}")
    return "\n".join(found)


def _table(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(row["alignment"] for row in rows))
    lines = [["method", *columns, "entropy"], ["---"] * (len(columns) + 2)]
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = {row["alignment"]: row for row in rows if row["method"] == method}
        entropy = cells.get("forward", {}).get("entropy")
        texts = {
            name: f"{row['aer']:.1%}"
            + ("" if row["aer_ci"] is None else f" ± {row['aer_ci']:.1%}")
            + f" ({row['precision']:.1%}, {row['recall']:.1%})"
            for name, row in cells.items()
        }
        rates = [texts.get(column, "").replace("%", "") for column in columns]
        lines.append([method, *rates, "" if entropy is None else f"{entropy:.2f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace(" --- ", "---")


def plot_alignment(
    alignments: Sequence[WordAlignment],
    path: str | Path,  # its extension sets the format; a CSV file with one line per word pair is written next to it
    sure: Sequence[Links] | None = None,  # gold links of each pair, framed by a solid line
    possible: Sequence[Links] | None = None,  # framed by a dashed line; may include sure links
) -> None:
    """A matrix for each sentence pair: shades of p(i | t), dots for found links, frames for gold links."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if not alignments:
        raise InputError("alignments", None, "there is nothing to draw", "give at least one")
    gold = []
    for name, links in (("sure", sure), ("possible", possible)):
        if links is not None and len(links) != len(alignments):
            raise InputError(name, len(links), f"sets of links for {len(alignments)} sentence pairs", "give one each")
        gold.append(links if links is not None else [set() for _ in alignments])
    longest = max(max(len(a.source_words), len(a.target_words)) for a in alignments)
    columns, side = min(3, len(alignments)), 1.2 + 0.26 * longest
    figure, grid = panels(-(-len(alignments) // columns), columns, (side, side))
    for axis in grid.flat[len(alignments) :]:
        axis.set_axis_off()
    for axis, alignment, s, p in zip(grid.flat, alignments, *gold, strict=False):
        _matrix(axis, alignment, s, p - s)
    marks: list[Any] = [Line2D([], [], marker="o", linestyle="", color=PALETTE[1], markersize=5, label="found")]
    if sure or possible:
        frames = {"gold": "-", "gold, possible": _BROKEN}
        marks += [Patch(fill=False, edgecolor="black", linestyle=line, label=name) for name, line in frames.items()]
    figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    rows = [row for n, (a, s, p) in enumerate(zip(alignments, *gold, strict=True)) for row in _pairs(n, a, s, p)]
    save(figure, path, csv_text(rows))


def _matrix(axis: Any, alignment: WordAlignment, sure: Links, possible: Links) -> None:
    from matplotlib.patches import Rectangle

    width, height = len(alignment.source_words), len(alignment.target_words)
    if alignment.soft.size:
        axis.imshow(alignment.soft, cmap="Blues", vmin=0, vmax=1.4, interpolation="nearest")  # marks stay visible
    for links, line in ((sure, "-"), (possible, _BROKEN)):
        for i, j in links:
            axis.add_patch(Rectangle((i - 0.42, j - 0.42), 0.84, 0.84, fill=False, edgecolor="black", linestyle=line))
    found = sorted(alignment.links)
    axis.plot([i for i, _ in found], [j for _, j in found], "o", color=PALETTE[1], markersize=5)
    axis.set(xlim=(-0.5, max(width, 1) - 0.5), ylim=(max(height, 1) - 0.5, -0.5), aspect="equal")
    axis.set_xticks(range(width), alignment.source_words, rotation=90)
    axis.set_yticks(range(height), alignment.target_words)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def _pairs(number: int, alignment: WordAlignment, sure: Links, possible: Links) -> Iterator[Row]:
    """A row for each word pair of a sentence pair."""
    for j, target in enumerate(alignment.target_words):
        for i, source in enumerate(alignment.source_words):
            kind = "sure" if (i, j) in sure else "possible" if (i, j) in possible else ""
            place = {"pair": number, "source": i, "target": j, "source_word": source, "target_word": target}
            yield place | {"p": float(alignment.soft[j, i]), "found": (i, j) in alignment.links, "gold": kind}
