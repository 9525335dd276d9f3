"""An interactive page: type a sentence and see where its translation comes from, in the view of the report."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hf_nmt_interp.analysis.alignment import add_links
from hf_nmt_interp.analysis.masking import Masked, mask_words
from hf_nmt_interp.attribution.api import attribute
from hf_nmt_interp.attribution.registry import METHODS
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.errors import InputError, install
from hf_nmt_interp.report.html import frame, render
from hf_nmt_interp.report.records import record

Translators = Mapping[str, tuple[Any, Any]]
_MOST = 2000  # characters of a sentence


def explain_text(
    translators: Translators, source: str, target: str = "", methods: tuple[str, ...] = ("lrp",)
) -> dict[str, list[AttributionResult]]:
    """Results for the page: one per method for each model.

    Args:
        translators: models and their tokenizers, by label.
        source: the sentence.
        target: its translation (force decoding); "" lets each model translate.
        methods: names of attribution methods.
    """
    if not source.strip():
        raise InputError("source", None, "is empty", "type a sentence")
    if len(source) > _MOST or len(target) > _MOST:
        raise InputError("source", None, f"has more than {_MOST:,} characters", "split it")
    found: dict[str, list[AttributionResult]] = {}
    for label, (model, tokenizer) in translators.items():
        shown: list[AttributionResult] = []
        for method in methods:
            given = target.strip() or (shown[0].text if shown else None)  # all methods explain one translation
            result = attribute(model, tokenizer, source, given, method=method)
            if shown and not target.strip():
                result = replace(result, chosen=None)  # the model's own
            shown.append(add_links(model, result))
        found[label] = shown
    return found


def mask_text(
    translators: Translators, found: Mapping[str, list[AttributionResult]], words: Sequence[int]
) -> dict[str, Masked]:
    """How masking source words, given by index, changes each model's output; empty if none are masked."""
    sides = {label: results[0].source_side.words for label, results in found.items()}
    if words and (others := [label for label, own in sides.items() if own != next(iter(sides.values()))]):
        raise InputError("models", others[0], "splits the sentence differently", "mask with one model at a time")
    return {label: mask_words(*translators[label], found[label][0], words) for label in found} if words else {}


def changes(masked: Mapping[str, Masked]) -> str:
    """The change of each target word's log-probability by masking, and the new translation, as lines of text."""
    lines = []
    for label, one in masked.items():
        words = "  ".join(f"{word} {change:+.2f}" for word, change in zip(one.target, one.changes, strict=True))
        lines += [f"{label} without {', '.join(one.words)}", f"  change of log p: {words}"]
        lines += [f"  the model now translates: {one.translation}"]
    return "\n".join(lines)


def page_of(found: Mapping[str, list[AttributionResult]]) -> Any:
    """The results in the format of `render`."""
    return found if len(found) > 1 else next(iter(found.values()))


def make_app(translators: Translators, title: str = "Where does each word come from?") -> Any:
    """The app as gradio Blocks; `launch()` serves it.

    Args:
        translators: models and their tokenizers, by label; the first is selected at the start.
        title: title of the page.
    """
    try:
        import gradio as gr
    except ImportError as error:
        raise InputError("app", None, "gradio is not installed", install("app")) from error
    labels, folder = list(translators), Path(tempfile.mkdtemp(prefix="hf_nmt_interp_"))

    def show(
        source: str, target: str, method: str, other: str, chosen: list[str], masked: list[int], last: str
    ) -> tuple[Any, ...]:
        methods = tuple(dict.fromkeys([method, *([other] if other != "none" else [])]))
        models = {label: translators[label] for label in chosen or labels[:1]}
        masked = masked if source == last else []  # they belong to another sentence
        try:
            found = explain_text(models, source, target, methods)
            lost = mask_text(models, found, masked)
        except InputError as error:
            raise gr.Error(str(error)) from error
        results, first = page_of(found), next(iter(found.values()))[0]
        words = gr.CheckboxGroup([(word, n) for n, word in enumerate(first.source_side.words)], value=masked)
        return frame(results, height=760), first.text, changes(lost), words, source, *_save(folder, found, lost)

    with gr.Blocks(title=title, analytics_enabled=False) as app:
        gr.Markdown(f"## {title}")
        source = gr.Textbox(label="Source", value="The cat is sleeping on the sofa.", max_lines=3)
        with gr.Row():
            method = gr.Dropdown(list(METHODS), value="lrp", label="Method")
            other = gr.Dropdown(["none", *METHODS], value="none", label="Compare with")
            models = gr.CheckboxGroup(labels, value=labels[:1], label="Models", visible=len(labels) > 1)
        target = gr.Textbox(label="Translation to explain (empty: the model translates)", max_lines=3)
        button = gr.Button("Translate and explain", variant="primary")
        translation = gr.Textbox(label="Translation", interactive=False)
        masked = gr.CheckboxGroup([], label="Mask source words", type="value")
        changed = gr.Textbox(label="What changes", lines=3, interactive=False)
        view, last = gr.HTML(), gr.State("")
        with gr.Row():
            files = [gr.DownloadButton(f"Download {kind}") for kind in ("HTML", "JSON")]
        inputs = [source, target, method, other, models, masked, last]
        outputs = [view, translation, changed, masked, last, *files]
        for event in (button.click, source.submit, target.submit, masked.input, method.change, other.change):
            event(show, inputs, outputs, api_name=False, concurrency_limit=1)
    return app


def _save(folder: Path, found: Mapping[str, list[AttributionResult]], masked: Mapping[str, Masked]) -> list[str]:
    """Write the files to download, and return their paths."""
    place = Path(tempfile.mkdtemp(dir=folder))
    (place / "explained.html").write_text(render(page_of(found)), encoding="utf-8")
    records = [{"model": label} | record(result) for label, own in found.items() for result in own]
    for one in records:
        one["masked"] = asdict(masked[one["model"]]) if masked else None
    (place / "explained.json").write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
    return [str(place / f"explained.{kind}") for kind in ("html", "json")]
