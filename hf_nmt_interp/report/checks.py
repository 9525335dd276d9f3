"""Checks of translations as a self-contained HTML page that marks the words."""

from collections.abc import Iterable
from typing import Any

from hf_nmt_interp.report.html import environment


def render_checks(rows: Iterable[dict[str, Any]], title: str = "Checked translations") -> str:
    """A page with a card for each row of the verb `check`: words, verdicts with their false-alarm rates."""
    return environment().get_template("checks.html").render(title=title, rows=list(rows))
