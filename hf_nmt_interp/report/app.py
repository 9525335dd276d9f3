"""A page to play with: type a sentence, see where its translation comes from. It shows the report's own view."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hf_nmt_interp.analysis.alignment import add_links
from hf_nmt_interp.attribution.api import attribute
from hf_nmt_interp.attribution.registry import METHODS
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.html import frame, render
from hf_nmt_interp.report.records import record

Translators = Mapping[str, tuple[Any, Any]]
_MOST = 2000  # characters of a sentence


def explain_text(
    translators: Translators, source: str, target: str = "", methods: tuple[str, ...] = ("lrp",), masked: str = ""
) -> dict[str, list[AttributionResult]]:
    """Results for the page: for each model one per method and, if words are masked, one without them.

    Args:
        translators: models and their tokenizers, by label.
        source: the sentence.
        target: its translation (force decoding); "" lets each model translate.
        methods: names of attribution methods.
        masked: source words to leave out, separated by spaces; the same translation is explained without them.
    """
    if not source.strip():
        raise InputError("source", None, "is empty", "type a sentence")
    if len(source) > _MOST or len(target) > _MOST:
        raise InputError("source", None, f"has more than {_MOST:,} characters", "split it")
    without = _without(source, masked)
    found: dict[str, list[AttributionResult]] = {}
    for label, (model, tokenizer) in translators.items():
        shown: list[AttributionResult] = []
        for method in methods:
            given = target.strip() or (shown[0].text if shown else None)  # all methods explain one translation
            result = attribute(model, tokenizer, source, given, method=method)
            if shown and not target.strip():
                result = replace(result, chosen=None)  # the model's own
            shown.append(add_links(model, result))
        if without is not None:
            shown.append(add_links(model, attribute(model, tokenizer, without, shown[0].text, method=methods[0])))
        found[label] = shown
    return found


def _without(source: str, masked: str) -> str | None:
    """The source without these words; None if there are none."""
    words = masked.split()
    if missing := [word for word in words if word not in source.split()]:
        raise InputError("mask", missing[0], "is not a word of the sentence", "write it exactly as in the sentence")
    if not words:
        return None
    left = " ".join(word for word in source.split() if word not in words)
    if not left:
        raise InputError("mask", None, "no words are left", "keep some of them")
    return left


def page_of(found: Mapping[str, list[AttributionResult]]) -> Any:
    """The results as `render` takes them."""
    return found if len(found) > 1 else next(iter(found.values()))


def changes(found: Mapping[str, list[AttributionResult]]) -> str:
    """How masking changed the log-probability of each target word, as lines of text; "" if nothing was masked."""
    lines = []
    for label, results in found.items():
        full, last = results[0].to_words(), results[-1].to_words()
        if last.source_side.text == full.source_side.text or full.log_probs is None or last.log_probs is None:
            continue
        if full.target_tokens != last.target_tokens:
            continue
        pairs = zip(full.target_tokens, last.log_probs - full.log_probs, strict=True)
        words = "  ".join(f"{word} {change:+.2f}" for word, change in pairs)
        lines.append(f"{label}, change of log p without these words: {words}")
    return "\n".join(lines)


def make_app(translators: Translators, title: str = "Where does each word come from?") -> Any:
    """The app as gradio Blocks; `launch()` serves it.

    Args:
        translators: models and their tokenizers, by label; the first is chosen at the start.
        title: of the page.
    """
    try:
        import gradio as gr
    except ImportError as error:
        raise InputError("app", None, "needs gradio", 'install the extra: pip install "hf_nmt_interp[app]"') from error
    labels, folder = list(translators), Path(tempfile.mkdtemp(prefix="hf_nmt_interp_"))

    def show(source: str, target: str, method: str, other: str, masked: str, chosen: list[str]) -> tuple[Any, ...]:
        methods = tuple(dict.fromkeys([method, *([other] if other != "none" else [])]))
        models = {label: translators[label] for label in chosen or labels[:1]}
        try:
            found = explain_text(models, source, target, methods, masked)
        except InputError as error:
            raise gr.Error(str(error)) from error
        results = page_of(found)
        place = Path(tempfile.mkdtemp(dir=folder))
        (place / "explained.html").write_text(render(results), encoding="utf-8")
        records = [{"model": label} | record(result) for label, own in found.items() for result in own]
        (place / "explained.json").write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
        files = [str(place / f"explained.{kind}") for kind in ("html", "json")]
        return frame(results, height=760), found[next(iter(found))][0].text, changes(found), *files

    with gr.Blocks(title=title, analytics_enabled=False) as app:
        gr.Markdown(f"## {title}")
        source = gr.Textbox(label="Source", value="The cat is sleeping on the sofa.", max_lines=3)
        with gr.Row():
            method = gr.Dropdown(list(METHODS), value="lrp", label="Method")
            other = gr.Dropdown(["none", *METHODS], value="none", label="Compare with")
            models = gr.CheckboxGroup(labels, value=labels[:1], label="Models", visible=len(labels) > 1)
        target = gr.Textbox(label="Translation to explain (empty: the model translates)", max_lines=3)
        masked = gr.Textbox(label="Source words to leave out", placeholder="sleeping sofa")
        button = gr.Button("Translate and explain", variant="primary")
        translation = gr.Textbox(label="Translation", interactive=False)
        changed = gr.Textbox(label="What changes", interactive=False)
        view = gr.HTML()
        with gr.Row():
            files = [gr.DownloadButton(f"Download {kind}") for kind in ("HTML", "JSON")]
        inputs = [source, target, method, other, masked, models]
        for event in (button.click, source.submit, target.submit, masked.submit, method.change, other.change):
            event(show, inputs, [view, translation, changed, *files], api_name=False, concurrency_limit=1)
    return app
