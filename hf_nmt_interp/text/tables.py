"""Rows as CSV text, and the types of their columns for pyarrow."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args


def safe_cell(value: Any) -> Any:
    """A value for a table: text that a spreadsheet would read as a formula gets a leading apostrophe.

    >>> safe_cell("=1+1"), safe_cell("-3.5"), safe_cell(-3.5), safe_cell("well")
    ("'=1+1", '-3.5', -3.5, 'well')
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def csv_text(rows: Iterable[Mapping[str, Any]], fields: Sequence[str] | None = None) -> str:
    """CSV with a header and one line per row; `fields` defaults to those of the first row. For text see `safe_cell`.

    >>> csv_text([{"step": 1, "open": 0.5}]).splitlines()
    ['step,open', '1,0.5']
    >>> csv_text([{"step": 1, "open": 0.5}], ["open"]).splitlines()
    ['open', '0.5']
    """
    rows = list(rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, fields or list(rows[0] if rows else ()), lineterminator="\n")
    writer.writeheader()
    names = writer.fieldnames
    writer.writerows({name: safe_cell(row[name]) for name in (names if fields else row)} for row in rows)
    return file.getvalue()


def arrow_schema(types: Mapping[str, Any]) -> Any:
    """A pyarrow schema from the Python types of the columns.

    Args:
        types: str, int, float, bool or a list of them by name, e.g. `list[int]`; `[types]` for a list of rows.

    >>> arrow_schema({"line": int, "heads": [{"kind": str, "offsets": list[int]}]}).field("heads").type
    ListType(list<item: struct<kind: string, offsets: list<item: int64>>>)
    """
    import pyarrow as pa

    plain = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}

    def arrow(kind: Any) -> Any:
        if isinstance(kind, Mapping):
            return pa.struct([(name, arrow(of)) for name, of in kind.items()])
        items = kind if isinstance(kind, list) else get_args(kind)
        return pa.list_(arrow(items[0])) if items else plain[kind]

    return pa.schema([(name, arrow(kind)) for name, kind in types.items()])
