"""Rows as CSV text."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def csv_text(rows: Iterable[Mapping[str, Any]], fields: Sequence[str] | None = None) -> str:
    """A header and one line a row.

    Args:
        rows: of the same fields.
        fields: those to write, others are left out; None for those of the first row.

    >>> csv_text([{"step": 1, "open": 0.5}]).splitlines()
    ['step,open', '1,0.5']
    >>> csv_text([{"step": 1, "open": 0.5}], ["open"]).splitlines()
    ['open', '0.5']
    """
    rows = list(rows)
    file = io.StringIO()
    names = fields or list(rows[0] if rows else ())
    writer = csv.DictWriter(file, names, lineterminator="\n", extrasaction="raise" if fields is None else "ignore")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
