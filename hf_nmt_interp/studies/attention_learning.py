"""How attention learns (snell2021, section 3): trainings, curves of agreement over them, the row of table 2.

Definitions: docs/methods.md, How attention learns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_nmt_interp.analysis.distributions import kendall_tau
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.metrics import best_first
from hf_nmt_interp.metrics.agreement import score
from hf_nmt_interp.metrics.agreement.score import agreement, contextualized_agreement, random_agreement
from hf_nmt_interp.studies.snapshots import Snapshot

Row = dict[str, Any]
Runs = Mapping[str, Mapping[int, Snapshot]]  # by training and step
MEASURES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {"agreement": agreement, "kendall_tau": kendall_tau}
# name of the curve -> score of the standard training at its end, the other training, its score
CURVES = {
    "A(alpha,beta_uf)": ("alpha", "uniform", "beta"),
    "A(delta,beta_uf)": ("delta", "uniform", "beta"),
    "A(alpha,alpha_2)": ("alpha", "second_seed", "alpha"),
}
SNAPSHOTS = "snapshots"  # folder of a training
_ROWS = 1000  # output words whose pairs of positions are held at a time


@dataclass(frozen=True)
class TrainingRun:
    """One of the study's trainings."""

    attention_mode: str | None  # of the LSTM model; None for the proxy
    seed: int  # added to that of the study
    scores: tuple[str, ...]  # that its snapshots hold
    last_scores: tuple[str, ...] = ()  # more of them at the end


RUNS = {
    "standard": TrainingRun("learned", 0, ("alpha",), ("beta", "delta")),
    "uniform": TrainingRun("uniform", 0, ("beta",)),
    "proxy": TrainingRun(None, 0, ("beta",)),
    "second_seed": TrainingRun("learned", 1, ("alpha",)),
}


def evaluation_steps(last: int, early: Sequence[int], every: int) -> list[int]:
    """The early steps, then every so many after the last of them, and the last step.

    >>> evaluation_steps(5000, [0, 50, 100, 500, 1000, 1500], 2000)
    [0, 50, 100, 500, 1000, 1500, 3500, 5000]
    """
    if every < 1 or last < 1:
        raise InputError("every, last", (every, last), "must be at least 1 step")
    later = range(max(early, default=0) + every, last, every)
    return sorted({*(step for step in early if step < last), *later, last})


def read_snapshots(folder: str | Path) -> dict[int, Snapshot]:
    """Snapshots of a run by step, in order."""
    files = {int(path.stem): path for path in Path(folder, SNAPSHOTS).glob("*.safetensors")}
    if not files:
        raise InputError("folder", str(folder), f"has no {SNAPSHOTS}/*.safetensors", "run the training first")
    return {step: Snapshot.load(files[step]) for step in sorted(files)}


def is_complete(folder: str | Path, steps: int) -> bool:
    """Whether a training has got to its last step."""
    return Path(folder, SNAPSHOTS, f"{steps}.safetensors").exists()


def mean_agreement(u: Tensor, v: Tensor, kept: Tensor, measure: str = "agreement") -> float:
    """Mean of a measure of u and v [N, L] at kept positions [N, L], over words that have it (tau needs pairs)."""
    check_choice("measure", measure, MEASURES)
    if u.shape != v.shape:
        problem = f"have the shapes {list(u.shape)} and {list(v.shape)}"
        raise InputError("u, v", None, problem, "take snapshots on the same validation set")
    pieces = (z.masked_fill(~kept, 0).double().split(_ROWS) for z in (u, v))
    found = [MEASURES[measure](*piece) for piece in zip(*pieces, kept.split(_ROWS), strict=True)]
    return torch.cat(found).nanmean().item()


def learning_curves(runs: Runs, measure: str = "agreement") -> list[Row]:
    """What agrees with the standard training's end, by one of `MEASURES`, and performance: statistic, step, value.

    Trainings other than "standard" may be missing; the curves that need them are then left out.
    """
    end = last(runs, "standard")
    rows: list[Row] = []

    def add(name: str, step: int, value: float) -> None:
        rows.append({"statistic": name, "step": step, "value": value})

    for name, (own, run, other) in CURVES.items():
        for step, snapshot in runs.get(run, {}).items():
            if own in end.scores:
                add(name, step, mean_agreement(end.scores[own], snapshot.scores[other], end.kept, measure))
    for step, snapshot in runs.get("uniform", {}).items() if runs.get("proxy") else ():
        proxy = last(runs, "proxy").scores["beta"]
        add("A(beta_uf,beta_px)", step, mean_agreement(snapshot.scores["beta"], proxy, end.kept, measure))
    if "beta" in end.scores:
        value = mean_agreement(end.scores["alpha"], end.scores["beta"], end.kept, measure)
        add("A(alpha,beta)", max(runs["standard"]), value)
    random = random_agreement(end.kept).mean().item() if measure == "agreement" else 0.0
    add("A(random)", max(runs["standard"]), random)
    for run, snapshots in runs.items():
        for step, snapshot in snapshots.items():
            add(f"performance({run})", step, snapshot.performance)
    return rows


def table_row(curves: list[Row]) -> Row:
    """The row of table 2, in percent; None for what is not there.

    A(alpha,beta_uf) is the largest over the uniform training (appendix A.7), and that step's beta_uf stands in the
    other columns. xi is starred, by its name in `starred`, if the second seed never agrees as well.
    """

    def curve(name: str) -> dict[int, float]:
        return {row["step"]: 100 * row["value"] for row in curves if row["statistic"] == name}

    alpha_uf, second = curve("A(alpha,beta_uf)"), curve("A(alpha,alpha_2)")
    best = best_first(sorted(alpha_uf), alpha_uf.__getitem__, score)[0] if alpha_uf else -1
    row: Row = {name: curve(name).get(best) for name in ("A(alpha,beta_uf)", "A(beta_uf,beta_px)", "A(delta,beta_uf)")}
    row |= {name: next(iter(curve(name).values()), None) for name in ("A(alpha,beta)", "A(random)")}
    performance, starred = curve("performance(second_seed)"), []
    for pair in ("alpha,beta_uf", "alpha,beta"):
        value = row[f"A({pair})"]
        if value is None or not second:
            row[f"xi({pair})"] = None
            continue
        xi = contextualized_agreement(value, second, performance)
        row[f"xi({pair})"] = xi.performance
        starred += [f"xi({pair})"] if xi.step is None else []
    standard = curve("performance(standard)")
    row["xi*"] = performance[max(performance)] if performance else standard[max(standard)]
    return row | {"best uniform step": best if alpha_uf else None, "starred": " ".join(starred)}


def last(runs: Runs, name: str) -> Snapshot:
    """The last snapshot of a training."""
    if not runs.get(name):
        raise InputError("runs", list(runs), f"has no snapshots of {name!r}", "train it first")
    return runs[name][max(runs[name])]
