"""Explanations in a terminal: 80 columns are enough, colour is not needed."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.attribution.scores import compares_prefixes
from hf_nmt_interp.report.records import (
    RELIANT,
    best_earlier,
    best_sources,
    gap_name,
    linked_sources,
    method_name,
    shares,
)

_BLUE = "color(32)"  # readable on black and on white
_BAR = 12
_SUPERSCRIPT = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹'")


def show(result: AttributionResult, console: Console) -> None:
    """Print one explanation: both sentences, numbered by their links if known, and a line for each target word."""
    ascii_only = console.options.ascii_only
    best, earlier, share = best_sources(result), best_earlier(result), shares(result)
    arrow = ("-> ", _BLUE) if ascii_only else ("→ ", _BLUE)
    links, prefixes = linked_sources(result), compares_prefixes(result.settings)
    own = [[] if result.links is None or s else [i] for i, s in enumerate(result.source_side.special)]
    sentences = Table.grid(expand=False)
    sentences.add_row(" " * len(arrow[0]), _numbered(result, "source", own, ascii_only))
    sentences.add_row(Text(*arrow), _numbered(result, "target", links, ascii_only))

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("target", overflow="fold", max_width=22, style="bold")
    if result.contrast:
        table.add_column("other prefix" if prefixes else "and not", overflow="fold", max_width=22)
    if share is not None:
        table.add_column("from the source", no_wrap=True)
    table.add_column("most relevant", overflow="fold", max_width=20)
    table.add_column("", justify="right", style="dim")
    if any(earlier):
        table.add_column("earlier", overflow="fold", max_width=12)
    table.add_column("log p", justify="right")
    unchosen = [not chosen for chosen in result.chosen or [True] * len(result.target_tokens)]
    for t, token in enumerate(result.target_tokens):
        other = None if result.contrast is None else result.contrast[t]
        if (result.level == "word" and result.target_side.special[t]) or (result.contrast and other is None):
            continue
        cells: list[Text | str] = [_plain(token + " *" * unchosen[t])]
        if other is not None:
            cells.append(_plain(f"...{other[-19:]}" if prefixes and len(other) > 22 else other))
        if share is not None:
            cells.append(_bar(float(share[t]), ascii_only))
        found, before = best[t], earlier[t]
        cells += [Text("-"), Text()] if found is None else [_plain(result.source_tokens[found[0]]), f"{found[1]:.0%}"]
        if any(earlier):
            cells.append("" if before is None else _plain(result.target_tokens[before[0]]))
        table.add_row(*cells, "" if result.log_probs is None else f"{result.log_probs[t]:.2f}")
    if any(unchosen):
        table.caption, table.caption_justify = Text("* not the model's first choice", "dim"), "left"
    console.print(Group(sentences, Padding(table, (0, 0, 0, len(arrow[0])), expand=False)))


def legend(*results: AttributionResult) -> Text:
    """Print what the columns mean, and which methods produced them."""
    text = "most relevant: the source word that contributed most, and its share of the source's part. log p: in nats."
    if any(shares(result) is not None for result in results):
        text = "from the source: its part of the decision; the rest came from the words before. " + text
    if any(found for result in results for found in best_earlier(result)):
        text += f" earlier: the earlier target word that contributed most, where the source has under {RELIANT:.0%}."
    if any(result.links is not None for result in results):
        text += " Small numbers: which source word a target word translates."
    if any(result.contrast and not compares_prefixes(result.settings) for result in results):
        text += " and not: what the target is compared with; the difference of their scores is explained."
    if any(result.contrast and compares_prefixes(result.settings) for result in results):
        text += (
            " other prefix: what the words before are compared with; the divergence of the predictions after the two"
        )
        text += " is explained."
    if any(result.settings.get("logit") == "top1" for result in results):
        text += " lrp explains the model's first choice, even where the translation has another word."
    return Text(f"Method{'s' * (len(results) > 1)}: {', '.join(map(_method, results))}. {text}", "dim")


def _method(result: AttributionResult) -> str:
    """The method, its settings and its gap, e.g. `lrp (rule gamma; relevance lost or made up: 1e-07)`."""
    name, gap = method_name(result), result.conservation_gap
    if gap is None:
        return name
    start = f"{name[:-1]}; " if name.endswith(")") else f"{name} ("
    return f"{start}{gap_name(result)}: {gap:.0e})"


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Rows of the same fields as a table."""
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name in rows[0] if rows else ():
        is_number = any(isinstance(row[name], int | float) for row in rows)
        found.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        found.add_row(*map(_cell, row.values()))
    return found


def _cell(value: Any) -> Text:
    if value is None:
        return Text("-", "dim")
    return _plain(f"{value:.4g}" if isinstance(value, float) else str(value))


def _numbered(result: AttributionResult, side: str, links: Sequence[Sequence[int]], ascii_only: bool) -> Text:
    """A sentence whose words are marked with the numbers of source words, counted from 1."""
    tokens = getattr(result, f"{side}_tokens")
    special = getattr(result, f"{side}_side").special
    text = Text(overflow="fold")
    first = next((i for i, is_special in enumerate(result.source_side.special) if not is_special), 0)
    for token, own, is_special in zip(tokens, links, special, strict=True):
        if is_special and result.level == "word":
            continue
        text.append_text(_plain(token))
        if own:
            numbers = ",".join(str(i + 1 - first) for i in own)
            text.append(f"[{numbers}]" if ascii_only else numbers.translate(_SUPERSCRIPT), _BLUE)
        text.append(" ")
    return text


def _bar(share: float, ascii_only: bool) -> Text:
    """A share as a bar and a percentage."""
    if not np.isfinite(share):
        return Text("-", "dim")
    filled = round(_BAR * min(max(share, 0), 1))
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    return Text.assemble((full * filled, _BLUE), (empty * (_BAR - filled), "dim"), f" {share:4.0%}")


def _plain(text: str) -> Text:
    """Text from data: never markup, and without control characters that could control the terminal."""
    return Text("".join("�" if unicodedata.category(c) == "Cc" else c for c in text))
