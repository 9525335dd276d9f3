"""Comparison of pruning runs: BLEU by number of heads, and roles and layers of the remaining heads.

voita2019, figures 7 to 10 and table 2.
"""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from hf_nmt_interp.analysis.heads import HeadReport
from hf_nmt_interp.analysis.roles import Row
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.heads import NO_ROLE, role_colours
from hf_nmt_interp.report.style import HATCHES, PALETTE, draw_lines, panels, save
from hf_nmt_interp.text.tables import csv_text

Head = tuple[str, int, int]  # kind, layer, number
RESULTS, REPORT, GATES = "results.json", "heads.json", "gates.csv"
DECIDED = 0.05  # a gate is decided if the probability that it is 0, or that it is 1, is this close to 1


@dataclass
class PrunedModel:
    """A pruned translator."""

    name: str  # name of the run's folder, or "before"
    heads: dict[str, list[int]]  # number in each layer, by kind
    parameters: int  # of the entire model
    penalty: float | None  # lambda of the run, None before pruning
    scores: dict[str, float]  # of the test, e.g. {"test_bleu": 40.1}
    roles: dict[Head, list[str]]  # from a report, if there is one; sorted by relevance before pruning
    decided: float | None = None  # share of the gates that are almost surely 0 or 1 at the end
    scratch: float | None = None  # BLEU of a model trained from scratch with the same heads

    def row(self) -> dict[str, Any]:
        """For a table: heads, parameters, BLEU and how many heads have roles of each kind."""
        bleu, roles = self.scores.get("test_bleu"), Counter(r for own in self.kinds_of_roles().values() for r in own)
        order = list(role_colours())
        return {
            "run": self.name,
            "lambda": "" if self.penalty is None else f"{self.penalty:g}",
            "heads e/d/d-e": "/".join(str(sum(layers)) for layers in self.heads.values()),
            **{f"{kind} layers": " ".join(map(str, layers)) for kind, layers in self.heads.items()},
            "decided gates": "" if self.decided is None else f"{self.decided:.0%}",
            "parameters": f"{self.parameters:,}",
            "BLEU": "" if bleu is None else f"{bleu:.2f}",
            "BLEU from scratch": "" if self.scratch is None else f"{self.scratch:.2f}",
            "encoder heads by role": ", ".join(f"{roles[role]} {role}" for role in sorted(roles, key=order.index)),
        }

    def kinds_of_roles(self, kind: str = "encoder") -> dict[str, list[str]]:
        """Roles of each head of a kind, named layer.number, without details, or "none"; sorted by the first role."""
        order, own = list(role_colours()), [(place, roles) for (of, *place), roles in self.roles.items() if of == kind]
        kinds = [(place, list(dict.fromkeys(r.partition(":")[0] for r in roles)) or [NO_ROLE]) for place, roles in own]
        found = [(f"{layer}.{head}", roles) for (layer, head), roles in kinds]
        return dict(sorted(found, key=lambda item: order.index(item[1][0])))


def read_runs(
    folders: Sequence[str | Path], before: str | Path | None = None, scratch: Mapping[str, str | Path] | None = None
) -> list[PrunedModel]:
    """The translator before pruning, then the pruned model of each run of `train_l0.py`, most heads first.

    Roles come from the reports of the verb `heads`: `heads.json` in a run's folder, and the file `before`.
    `scratch` maps names of runs to output folders of models trained from scratch with the same heads.
    """
    scratch = scratch or {}
    if unknown := [name for name in scratch if name not in {Path(folder).name for folder in folders}]:
        raise InputError("scratch", unknown[0], "is not the name of a run", "give RUN=FOLDER")
    report = HeadReport.load(before).rows if before else []
    relevance = {_head(row): row["relevance"] or 0.0 for row in report}

    def model_of(name: str, found: dict[str, Any], penalty: float | None, rows: Sequence[Row]) -> PrunedModel:
        scores = {score: value for score, value in found.items() if score.startswith("test_")}
        ordered = sorted(rows, key=lambda row: -relevance.get(_head(row), 0.0))
        roles = {_head(row): row["roles"] for row in ordered}
        return PrunedModel(name, found["heads_by_layer"], found["parameters"], penalty, scores, roles)

    models, first = [], None
    for folder in map(Path, folders):
        rows = HeadReport.load(folder / REPORT).rows if (folder / REPORT).exists() else []
        try:
            found = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
            models.append(model_of(folder.name, found["pruned"], found["penalty"], rows))
            models[-1].decided = decided_gates(folder) if (folder / GATES).exists() else None
        except (OSError, KeyError, TypeError, ValueError) as error:  # missing, another file, or incomplete
            remedy = "it is written at the end of a run"
            raise InputError(str(folder), None, f"has no {RESULTS} of train_l0.py", remedy) from error
        if first is None or "test_bleu" in found["before"]:  # one of the runs may have scored it
            first = found["before"]
    if first is None:
        raise InputError("folders", None, "none given", "give at least one output folder of train_l0.py")
    for model in models:
        if model.name in scratch:
            model.scratch = _bleu_of(scratch[model.name])
    models.sort(key=lambda model: -sum(map(sum, model.heads.values())))
    return [model_of("before", first, None, report), *models]


def decided_gates(folder: str | Path) -> float:
    """Share of the gates of a run that are closed or fully open: P(g = 0) or P(g = 1) is above 1 - `DECIDED`.

    P(g > 0), the column `open`, is not enough: a new gate with log_alpha = 3 has 0.98, but P(g = 1) = 0.90.
    """
    import torch

    from hf_nmt_interp.models.gated.gates import HardConcreteGate

    rows = list(csv.DictReader(Path(folder, GATES).read_text(encoding="utf-8").splitlines()))
    last = max(int(row["step"]) for row in rows)
    ends = [float(row["log_alpha"]) for row in rows if int(row["step"]) == last]
    config = Path(folder, "gated", "config.json")
    found = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    settings = {name: found[f"gate_{name}"] for name in ("temperature", "stretch") if f"gate_{name}" in found}
    gate = HardConcreteGate(len(ends), **settings)
    with torch.no_grad():
        gate.log_alpha.copy_(torch.tensor(ends))
        return (torch.maximum(gate.p_zero(), gate.p_one()) >= 1 - DECIDED).double().mean().item()


def _bleu_of(folder: str | Path) -> float:
    try:
        return json.loads((Path(folder) / RESULTS).read_text(encoding="utf-8"))["test_bleu"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        remedy = "train it with train_translation.py --heads ... --test ..."
        raise InputError(str(folder), None, f"has no {RESULTS} with test_bleu", remedy) from error


def _head(row: Row) -> Head:
    return row["kind"], row["layer"], row["head"]


def plot_pruning(models: Sequence[PrunedModel], path: str | Path) -> None:
    """Plot BLEU against the remaining heads, and the encoder's heads by role, one column per model with a report.

    Heads with the same role are sorted by relevance before pruning, the most relevant at the bottom. Empty panels,
    e.g. roles without a report, are left out.
    """
    scored = [model for model in models if "test_bleu" in model.scores]
    known = [model for model in models if model.kinds_of_roles()]
    drawn = [(draw, some, width) for draw, some, width in ((_draw_bleu, scored, 1), (_draw_roles, known, 1.4)) if some]
    if not drawn:
        problem = "there is nothing to draw: no BLEU of a test and no roles of encoder heads"
        raise InputError("figure", None, problem, f"train with --test, or write RUN/{REPORT} with the verb heads")
    figure, grid = panels(1, len(drawn), (3.7, 3.5), width_ratios=[width for *_, width in drawn])
    for axis, (draw, some, _) in zip(grid[0], drawn, strict=True):
        draw(axis, some)
    save(figure, path, csv_text([model.row() for model in models]))


def _draw_bleu(axis: Any, models: Sequence[PrunedModel]) -> None:
    counts = [sum(map(sum, model.heads.values())) for model in models]
    for model, heads in zip(models, counts, strict=True):
        bleu, is_right = model.scores["test_bleu"], 2 * heads > min(counts) + max(counts)
        axis.plot(heads, bleu, "s" if model.penalty is None else "o", color=PALETTE[0])
        axis.annotate(f" {model.name} ", (heads, bleu), fontsize=7, va="bottom", ha="right" if is_right else "left")
    axis.set(xlabel="heads left, of all kinds", ylabel="BLEU")
    axis.margins(0.15)


def _draw_roles(axis: Any, models: Sequence[PrunedModel]) -> None:
    from matplotlib.patches import Patch

    hatches = dict(zip(role_colours(), cycle(HATCHES[1:]), strict=False)) | {NO_ROLE: ""}
    looks: Any = {r: {"facecolor": c, "edgecolor": "#999999", "hatch": hatches[r]} for r, c in role_colours().items()}
    for column, model in enumerate(models):
        for row, (name, roles) in enumerate(model.kinds_of_roles().items()):
            for i, role in enumerate(roles):  # a stripe for each
                left_end, width = column - 0.4 + i * 0.8 / len(roles), 0.8 / len(roles)
                axis.bar(left_end, 0.9, bottom=row, width=width, align="edge", linewidth=0.4, **looks[role])
            axis.text(column, row + 0.42, name, ha="center", va="center", fontsize=6)
    axis.set_xticks(range(len(models)), [model.name for model in models], fontsize=7, rotation=30, ha="right")
    axis.set_ylabel("encoder heads, layer.number")
    axis.legend(handles=[Patch(label=role, **look) for role, look in looks.items()], frameon=False, fontsize=7)


def plot_layers(models: Sequence[PrunedModel], path: str | Path) -> None:
    """Plot the remaining heads of each kind for each model (figure 9), and of each layer and kind (figure 10)."""
    kinds = list(models[0].heads)
    figure, axes = panels(1, 1 + len(kinds), (2.6, 2.6))
    names = [model.name for model in models]
    lines = {kind: [(i, sum(model.heads[kind])) for i, model in enumerate(models)] for kind in kinds}
    draw_lines(axes[0, 0], lines, marker=".")
    axes[0, 0].set_xticks(range(len(names)), names, fontsize=7, rotation=30, ha="right")
    axes[0, 0].set(ylabel="heads left", ylim=(0, None))
    axes[0, 0].legend(frameon=False, fontsize=7)
    for axis, kind in zip(axes[0, 1:], kinds, strict=True):
        draw_lines(axis, {model.name: list(enumerate(model.heads[kind])) for model in models}, marker=".")
        axis.set(xlabel=f"{kind} layer", ylim=(0, None), xticks=range(len(models[0].heads[kind])))
    axes[0, 1].legend(frameon=False, fontsize=7)
    rows = [
        {"run": model.name, "kind": kind, "layer": layer, "heads": heads}
        for model in models
        for kind, layers in model.heads.items()
        for layer, heads in enumerate(layers)
    ]
    save(figure, path, csv_text(rows))
