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
    writer = csv.DictWriter(file, fields or list(rows[0] if rows else ()), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows if fields is None else ({name: row[name] for name in fields} for row in rows))
    return file.getvalue()
