"""Explanations as self-contained HTML pages: no network, no framework; text from data is always escaped."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader
from markupsafe import escape

from hf_nmt_interp.analysis.head_maps import HeadMaps
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.attribution.scores import compares_prefixes
from hf_nmt_interp.report.records import gap_name, linked_sources, method_name, record, shares

_DIGITS = 4  # significant digits of every number on the page
Results = Iterable[AttributionResult]


def render(
    results: Results | Mapping[str, Results],
    title: str = "Explained translations",
    heads: Sequence[list[HeadMaps]] | None = None,
) -> str:
    """A page with a card for each sentence: heat map, shares of source and prefix, log-probabilities.

    Args:
        results: results of subwords (the page can then switch to words) or of words; consecutive results for the same
            source with different methods share a card. To compare models, a dictionary from names to results.
        title: title of the page.
        heads: attention heads of each result (of the first model), see `head_maps`; a card shows those of its first
            result.
    """
    if isinstance(results, Mapping):
        labels, rows = list(results), list(zip(*results.values(), strict=True))
    else:
        labels, rows = [""], [(result,) for result in results]
    cards: list[dict[str, Any]] = []
    for n, row in enumerate(rows):
        views = [_view(label, result) for label, result in zip(labels, row, strict=True)]
        source = row[0].source_side.text
        if not cards or cards[-1]["source"] != source or views[0]["name"] in _names(cards[-1:]):
            cards.append({"source": source, "views": []})
            if heads is not None:
                cards[-1]["heads"] = [_heads(kind) for kind in heads[n]]
        cards[-1]["views"] += views
    shown = [view for card in cards for view in card["views"]]
    page: dict[str, Any] = {"title": title, "cards": cards, "names": _names(cards) if len(cards) < len(shown) else []}
    page |= {"has_tokens": any("token" in v for v in shown), "has_shares": any(v["word"]["shares"] for v in shown)}
    page["has_heads"] = heads is not None
    return environment().get_template("report.html").render(page)


def render_table(rows: Sequence[dict[str, Any]], title: str) -> str:
    """A page with one table of rows that have the same fields."""
    return environment().get_template("table.html").render(title=title, rows=rows)


def frame(results: Iterable[AttributionResult], height: int = 520, most: int = 1600) -> str:
    """The page in an iframe, for notebooks: its style stays inside, and the frame fits the page.

    Args:
        results: see `render`.
        height: in pixels, used if scripts are disabled.
        most: maximum height in pixels; the frame scrolls above it.
    """
    style = f"width:100%;height:{height}px;max-height:{most}px;border:0"
    return f'<iframe title="Explained translations" style="{style}" srcdoc="{escape(render(results))}"></iframe>'


def _view(label: str, result: AttributionResult) -> dict[str, Any]:
    """One explanation on a card, by subwords (if known) and by words."""
    name = ": ".join(filter(None, [label, method_name(result)]))
    levels = {level.level: _level(level) for level in (result, result.to_words())}
    return {"name": name, "target": result.target_side.text, **levels}


def _heads(kind: HeadMaps) -> dict[str, Any]:
    """Weights of one kind of heads as bytes, which take a fifth of the size of decimal numbers."""
    layers = []
    for layer, (numbers, weights) in kind.layers.items():
        levels = np.rint(255 * np.clip(weights, 0, 1)).astype(np.uint8)
        texts = [b64encode(head.tobytes()).decode() for head in levels]
        layers.append({"layer": layer, "heads": list(numbers), "weights": texts})
    return {"name": kind.name, "rows": kind.queries, "columns": kind.keys, "layers": layers}


def _names(cards: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the views of some cards, each once."""
    return list(dict.fromkeys(view["name"] for card in cards for view in card["views"]))


def _level(result: AttributionResult) -> dict[str, Any]:
    """The data that the page's script draws."""
    whole = record(result, _DIGITS) | {"unchosen": [not chosen for chosen in result.chosen or ()]}
    kept = (
        "source_tokens", "target_tokens", "source_special", "target_special", "source", "prefix", "start", "unchosen"
    )  # fmt: skip
    share = None if shares(result) is None else whole["source_contribution"]
    links = None if result.links is None else linked_sources(result)
    diverges = result.contrast is not None and compares_prefixes(result.settings)
    found = {name: whole[name] for name in (*kept, "log_probs", "conservation_gap")}
    found["gap"] = gap_name(result)
    return found | {"shares": share, "links": links, "contrast": result.contrast, "diverges": diverges}


@cache
def environment() -> Environment:
    """The Jinja environment of the templates."""
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    # `tojson` also escapes <, > and &, so data cannot end the script element
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    return environment
