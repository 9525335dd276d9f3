"""Explanations as self-contained HTML pages: no network, no framework; text from data is always escaped."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import escape

from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.report.records import record, shares

_DIGITS = 4  # of every number on the page


def render(results: Iterable[AttributionResult], title: str = "Explained translations") -> str:
    """A page with a card for each sentence pair: heat map, shares of source and prefix, log-probabilities.

    Args:
        results: explanations of subwords (the page can then switch to words) or of words; neighbours that explain the
            same pair by different methods share a card.
        title: of the page.
    """
    cards: list[dict[str, Any]] = []
    for result in results:
        pair = {"source": " ".join(result.source_side.words), "target": " ".join(result.target_side.words)}
        view = {"name": _name(result)} | {level.level: _level(level) for level in (result, result.to_words())}
        if cards and pair.items() <= cards[-1].items() and view["name"] not in {v["name"] for v in cards[-1]["views"]}:
            cards[-1]["views"].append(view)
        else:
            cards.append(pair | {"views": [view]})
    has_tokens = any("token" in view for card in cards for view in card["views"])
    return _environment().get_template("report.html").render(title=title, cards=cards, has_tokens=has_tokens)


def render_table(rows: Sequence[dict[str, Any]], title: str) -> str:
    """A page with one table of rows that have the same fields."""
    return _environment().get_template("table.html").render(title=title, rows=rows)


def frame(results: Iterable[AttributionResult], height: int = 520) -> str:
    """The page in a frame of its own, for notebooks: its style stays inside."""
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe title="Explained translations" style="{style}" srcdoc="{escape(render(results))}"></iframe>'


def _level(result: AttributionResult) -> dict[str, Any]:
    """What the page's script draws."""
    share = shares(result)
    whole = record(result, _DIGITS)
    kept = ("source_tokens", "target_tokens", "source_special", "target_special", "source", "prefix", "start")
    return {name: whole[name] for name in (*kept, "log_probs", "conservation_gap")} | {
        "shares": None if share is None else whole["source_contribution"]
    }


def _name(result: AttributionResult) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    return f"{result.method} ({settings})" if settings else result.method


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True
    )
    # `tojson` also escapes <, > and &, so that nothing in the data can end the script element
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    return environment
