"""Contribution studies as figures and as tables.

voita2021: by position figures 1 to 7, 10 to 17, 19 and 20, stages of training figures 9 and 18.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.report.style import draw_lines, legend_below, line_styles, panel_lines, save
from hf_nmt_interp.studies.contribution_study import STUDIED, ContributionStudy, Row, is_shown
from hf_nmt_interp.text.files import write_whole

_LABELS = {
    "source_contribution": "source contribution",
    "source_part": "source part, start token included",
    "source_entropy": "entropy of source contributions",
    "prefix_entropy": "entropy of prefix contributions",
    "position_influence": "influence of the source position",
    "accuracy": "accuracy",
    "kl_to_final": "KL to the final model",
}


def plot_contributions(study: ContributionStudy, path: str | Path, statistics: Sequence[str] | None = None) -> None:
    """Plot curves with confidence intervals: one panel per statistic; lines are models, or the prefixes of one model.

    The first step, which has no prefix, is left out. Numbers are written to a CSV file next to the figure, whose
    extension sets the format (.svg, .pdf, .png). Without `statistics`, all statistics of the study are shown.
    """
    asked = statistics or STUDIED
    for name in asked:
        check_choice("statistics", name, STUDIED)
    kept = [name for name in asked if study.select(statistic=name)]
    if not kept:
        problem = f"the study has none of {', '.join(asked)}"
        raise InputError("statistics", None, problem, f"it has {', '.join(study.names('statistic')) or 'no rows'}")
    field, other = ("prefix", "model") if len(study.names("model")) == 1 else ("model", "prefix")
    groups = list(dict.fromkeys((row[other], row["source_tokens"], row["target_tokens"]) for row in study.rows))
    names = study.names(field)
    figure, axes = panel_lines(len(groups), len(kept))
    for line, (group, source_tokens, target_tokens) in zip(axes, groups, strict=True):
        for axis, statistic in zip(line, kept, strict=True):
            for name, style in zip(names, line_styles(len(names)), strict=True):
                fields = {other: group, "source_tokens": source_tokens, "target_tokens": target_tokens}
                _curve(axis, study.select(statistic=statistic, **{field: name}, **fields), name, style)
            axis.set(ylabel=_LABELS[statistic], xlabel="source position" if "influence" in statistic else "step")
        line[0].set_title(f"{other} {group}, {source_tokens} source and {target_tokens} target tokens", fontsize=8)
    legend_below(figure, axes[0, 0], names)
    shown = [row for row in study.rows if row["statistic"] in kept]
    save(figure, path, ContributionStudy(shown).to_csv())


def _curve(axis: Any, rows: list[Row], name: str, style: dict[str, Any]) -> None:
    rows = list(filter(is_shown, rows))
    positions = [row["position"] + 1 for row in rows]
    axis.plot(positions, [row["mean"] for row in rows], label=name, **style)
    ends = [[row["mean"] if row[end] is None else row[end] for row in rows] for end in ("low", "high")]
    axis.fill_between(positions, *ends, color=style["color"], alpha=0.15, linewidth=0)


def plot_training(study: ContributionStudy, path: str | Path) -> None:
    """Plot means over positions and sentences against the step in a model's name, one line per kind of prefix."""
    means = study.means()
    steps = {name: _step(name) for name in study.names("model")}
    prefixes, kept = study.names("prefix"), [s for s in _LABELS if any(row["statistic"] == s for row in means)]
    figure, axes = panel_lines(1, len(kept))
    for axis, statistic in zip(axes[0], kept, strict=True):
        rows = [row for row in means if row["statistic"] == statistic]
        points = [(row["prefix"], steps[row["model"]], row["mean"]) for row in rows]
        draw_lines(axis, {prefix: sorted((x, y) for of, x, y in points if of == prefix) for prefix in prefixes})
        axis.set(xlabel="training step", ylabel=_LABELS[statistic])
    legend_below(figure, axes[0, 0], prefixes)
    save(figure, path, study.to_csv())


def _step(model: str) -> int:
    if found := re.search(r"\d+$", model):
        return int(found[0])
    raise InputError("study", None, f"model {model!r} does not end in a number of steps", "e.g. checkpoint-500")


def write_study(study: ContributionStudy, path: Path, results: Mapping[str, Row], command: str) -> str:
    """Write the figure of a study, its numbers (.csv) and its `table_rows` (.json); return these in Markdown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plot_contributions(study, path)
    table = table_rows(study.means(), results)
    numbers = {"command": command, "sentences": max(row["sentences"] for row in study.rows), "table": table}
    write_whole(path.with_suffix(".json"), json.dumps(numbers, indent=2))
    return contribution_markdown(table)


def table_rows(means: Sequence[Row], results: Mapping[str, Row]) -> list[Row]:
    """A row for each model, prefix and, if there are several, lengths: BLEU, means, minutes of training.

    `results` contains the `results.json` of each model's training run; empty for a model without one.

    >>> row = {"model": "mrt", "prefix": "random", "statistic": "source_entropy", "mean": 1.5}
    >>> table_rows([row], {"mrt": {"test_bleu": 40.25, "train_seconds": 90, "train_cpu_seconds": 60}})
    [{'model': 'mrt', 'prefix': 'random', 'BLEU': 40.25, 'source entropy': 1.5, 'minutes': 1.5, 'CPU minutes': 1.0}]
    """
    rows: dict[tuple, Row] = {}
    sizes = ("source_tokens", "target_tokens")
    several = len({tuple(mean.get(size) for size in sizes) for mean in means}) > 1
    names = ("model", "prefix", *sizes * several)
    for mean in means:
        key = tuple(mean[name] for name in names)
        row = rows.setdefault(key, {name.replace("_", " "): value for name, value in zip(names, key, strict=True)})
        row.setdefault("BLEU", results[key[0]].get("test_bleu"))
        row[mean["statistic"].replace("_", " ")] = mean["mean"]
    for (model, *_), row in rows.items():
        for name, field in (("minutes", "train_seconds"), ("CPU minutes", "train_cpu_seconds")):
            row[name] = results[model][field] / 60 if field in results[model] else None
    return list(rows.values())


def contribution_markdown(rows: Sequence[Row]) -> str:
    """A Markdown table of rows such as `table_rows` makes; empty columns are left out.

    >>> print(contribution_markdown([{"model": "mrt", "BLEU": 40.25, "accuracy": None, "source entropy": 1.5}]))
    | model | BLEU | source entropy |
    |---|---|---|
    | mrt | 40.2 | 1.500 |
    <BLANKLINE>
    """
    names = [name for name in dict.fromkeys(chain(*rows)) if any(row.get(name) is not None for row in rows)]
    digits = {"BLEU": 1, "minutes": 1, "CPU minutes": 1}

    def text(name: str, value: Any) -> str:
        return f"{value:.{digits.get(name, 3)}f}" if isinstance(value, float) else str("" if value is None else value)

    lines = [names, *([text(name, row.get(name)) for name in names] for row in rows)]
    head, *rest = (f"| {' | '.join(line)} |\n" for line in lines)
    return f"{head}|{'---|' * len(names)}\n{''.join(rest)}"
