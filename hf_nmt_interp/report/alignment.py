"""The rows of `AlignmentTable` as Markdown tables."""

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

_TITLES = {
    "force": "Force decoding, against the gold links",
    "free": "Free decoding, against eflomal",
    "noise": "SmoothGrad by noise, force decoding",
}


def alignment_markdown(rows: Sequence[Row]) -> str:
    """A Markdown table for each kind of row: a line a method, a column an alignment, last the forward entropy.

    >>> rates = {"aer": 0.25, "precision": 1.0, "recall": 0.5}
    >>> row = {"table": "force", "method": "grad", "alignment": "forward", "pairs": 9, **rates, "entropy": 1.234}
    >>> print(alignment_markdown([row]))
    Force decoding, against the gold links (9 pairs): AER (precision, recall) in %
    <BLANKLINE>
    | method | forward | entropy |
    |---|---|---|
    | grad | 25.0 (100.0, 50.0) | 1.23 |
    <BLANKLINE>
    """
    found = []
    for kind, title in _TITLES.items():
        if chosen := [row for row in rows if row["table"] == kind]:
            found.append(f"{title} ({chosen[0]['pairs']} pairs): AER (precision, recall) in %\n\n{_table(chosen)}")
    return "\n".join(found)


def _table(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(row["alignment"] for row in rows))
    lines = [["method", *columns, "entropy"], ["---"] * (len(columns) + 2)]
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = {row["alignment"]: row for row in rows if row["method"] == method}
        entropy = cells.get("forward", {}).get("entropy")
        lines.append([method, *(_cell(cells.get(c)) for c in columns), "" if entropy is None else f"{entropy:.2f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace(" --- ", "---")


def _cell(row: Row | None) -> str:
    return f"{row['aer']:.1%} ({row['precision']:.1%}, {row['recall']:.1%})".replace("%", "") if row else ""
