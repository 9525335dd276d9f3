"""Pruning runs side by side: heads against BLEU, and what the kept heads do (voita2019, figures 7 and 8, table 2)."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from hf_nmt_interp.analysis.heads import HeadReport
from hf_nmt_interp.analysis.roles import Row
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.heads import NO_ROLE, role_colours
from hf_nmt_interp.report.style import HATCHES, PALETTE, panels, save
from hf_nmt_interp.text.tables import csv_text

Head = tuple[str, int, int]  # kind, layer, number
RESULTS, REPORT = "results.json", "heads.json"


@dataclass
class PrunedModel:
    """What is left of a translator."""

    name: str  # of the run's folder, or "before"
    heads: dict[str, list[int]]  # how many of each layer, for each kind
    parameters: int  # of the whole model
    penalty: float | None  # lambda of the run, None before pruning
    scores: dict[str, float]  # of the test, e.g. {"test_bleu": 40.1}
    roles: dict[Head, list[str]]  # where a report tells them; heads that were most relevant before pruning first

    def row(self) -> dict[str, Any]:
        """For a table: heads, parameters, BLEU and how many heads have roles of each kind."""
        bleu, roles = self.scores.get("test_bleu"), Counter(self.first_roles().values())
        return {
            "run": self.name,
            "lambda": "" if self.penalty is None else f"{self.penalty:g}",
            "heads e/d/d-e": "/".join(str(sum(layers)) for layers in self.heads.values()),
            "encoder layers": " ".join(map(str, self.heads["encoder"])),
            "parameters": f"{self.parameters:,}",
            "BLEU": "" if bleu is None else f"{bleu:.2f}",
            "encoder heads by role": ", ".join(f"{n} {role}" for role, n in roles.items()),
        }

    def first_roles(self, kind: str = "encoder") -> dict[str, str]:
        """For each head of a kind, named layer.number, its first role without details, or "none"; sorted by role."""
        order, own = list(role_colours()), [(place, roles) for (of, *place), roles in self.roles.items() if of == kind]
        found = [(f"{layer}.{head}", [*roles, NO_ROLE][0].partition(":")[0]) for (layer, head), roles in own]
        return dict(sorted(found, key=lambda item: order.index(item[1])))


def read_runs(folders: Sequence[str | Path], before: str | Path | None = None) -> list[PrunedModel]:
    """The translator before pruning, then what each run of `train_l0.py` left of it, by falling number of heads.

    Roles are those of `heads.json` where the verb `heads` wrote one: in a run's folder, and the file `before`.
    """
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
        except (OSError, KeyError, TypeError, ValueError) as error:  # none, another one, or half of one
            remedy = "it writes one when it ends"
            raise InputError(str(folder), None, f"no {RESULTS} of train_l0.py there", remedy) from error
        if first is None or "test_bleu" in found["before"]:  # one of the runs may have tested it
            first = found["before"]
    if first is None:
        raise InputError("folders", None, "none given", "name at least one output folder of train_l0.py")
    models.sort(key=lambda model: -sum(map(sum, model.heads.values())))
    return [model_of("before", first, None, report), *models]


def _head(row: Row) -> Head:
    return row["kind"], row["layer"], row["head"]


def plot_pruning(models: Sequence[PrunedModel], path: str | Path) -> None:
    """BLEU against the heads that are left, and the encoder's heads by role, a column for each model with a report.

    Heads of the same role are in order of their relevance before pruning, the most relevant at the bottom.
    """
    from matplotlib.patches import Patch

    figure, grid = panels(1, 2, (3.7, 3.5), width_ratios=[1, 1.4])
    left, right = grid[0]
    scored = [model for model in models if "test_bleu" in model.scores]
    counts = [sum(map(sum, model.heads.values())) for model in scored]
    for model, heads in zip(scored, counts, strict=True):
        bleu, is_right = model.scores["test_bleu"], 2 * heads > min(counts) + max(counts)
        left.plot(heads, bleu, "s" if model.penalty is None else "o", color=PALETTE[0])
        left.annotate(f" {model.name} ", (heads, bleu), fontsize=7, va="bottom", ha="right" if is_right else "left")
    left.set(xlabel="heads left, of all kinds", ylabel="BLEU")
    left.margins(0.15)
    known = [model for model in models if model.first_roles()]  # of the others there is no report
    hatches = dict(zip(role_colours(), cycle(HATCHES[1:]), strict=False)) | {NO_ROLE: ""}
    looks: Any = {r: {"facecolor": c, "edgecolor": "#999999", "hatch": hatches[r]} for r, c in role_colours().items()}
    for column, model in enumerate(known):
        for row, (name, role) in enumerate(model.first_roles().items()):
            right.bar(column, 0.9, bottom=row, width=0.8, linewidth=0.4, **looks[role])
            right.text(column, row + 0.42, name, ha="center", va="center", fontsize=6)
    right.set_xticks(range(len(known)), [model.name for model in known], fontsize=7, rotation=30, ha="right")
    right.set_ylabel("encoder heads, layer.number")
    right.legend(handles=[Patch(label=role, **look) for role, look in looks.items()], frameon=False, fontsize=7)
    save(figure, path, csv_text([model.row() for model in models]))
