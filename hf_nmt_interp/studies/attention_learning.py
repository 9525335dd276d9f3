"""How attention learns (snell2021, section 3): training runs, curves of agreement over them, the row of table 2.

Definitions: docs/methods.md, How attention learns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_nmt_interp.analysis.distributions import bootstrap_means, half_interval, kendall_tau
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
    "A(alpha,alpha_fr)": ("alpha", "frozen", "alpha"),
}
# name of the curve -> training whose probe at its end is compared with that of the uniform training
BAGS = {"A(beta_uf,beta_px)": "proxy", "A(beta_uf,beta_log)": "logistic"}
PAIRS = ("alpha,beta_uf", "beta_uf,beta_px", "delta,beta_uf", "alpha,beta")  # of table 5
LEVELS = ("A(alpha,beta)", "A(alpha_opt,beta)", "A(random)")  # at the end of the standard training only
PERFORMANCES = ("accuracy", "bleu")
SNAPSHOTS = {"valid": "snapshots", "train": "snapshots-train"}  # folder of snapshots in a training run, by set
_ROWS = 1000  # output words processed at a time, each with all pairs of positions


@dataclass(frozen=True)
class TrainingRun:
    """One of the study's training runs."""

    attention_mode: str | None  # of the LSTM model; None for the proxy
    seed: int  # added to that of the study
    scores: tuple[str, ...]  # stored in its snapshots
    last_scores: tuple[str, ...] = ()  # more of them at the end
    trained: str = ""  # prefix of the names of the trained weights; all others keep their initial values
    translates: bool = False  # whether its translations are scored by BLEU


RUNS = {
    "standard": TrainingRun("learned", 0, ("alpha",), ("beta", "delta"), translates=True),
    "uniform": TrainingRun("uniform", 0, ("beta",)),
    "proxy": TrainingRun(None, 0, ("beta",)),
    "second_seed": TrainingRun("learned", 1, ("alpha",), translates=True),
    "frozen": TrainingRun("learned", 1, ("alpha",), trained="attention."),
}
OPTIONAL = ("frozen", "logistic")  # optional in a study


def evaluation_steps(last: int, early: Sequence[int], every: int) -> list[int]:
    """The early steps, then one every `every` steps, and the last step.

    >>> evaluation_steps(5000, [0, 50, 100, 500, 1000, 1500], 2000)
    [0, 50, 100, 500, 1000, 1500, 3500, 5000]
    """
    if every < 1 or last < 1:
        raise InputError("every, last", (every, last), "must be at least 1 step")
    later = range(max(early, default=0) + every, last, every)
    return sorted({*(step for step in early if step < last), *later, last})


def read_snapshots(folder: str | Path, on: str = "valid") -> dict[int, Snapshot]:
    """Snapshots of a run on one of the sets, ordered by step."""
    files = {int(path.stem): path for path in Path(folder, SNAPSHOTS[on]).glob("*.safetensors")}
    if not files:
        raise InputError("folder", str(folder), f"has no {SNAPSHOTS[on]}/*.safetensors", "run the training first")
    return {step: Snapshot.load(files[step]) for step in sorted(files)}


def read_runs(folder: str | Path, on: str = "valid") -> dict[str, dict[int, Snapshot]]:
    """Snapshots of all training runs in a study's folder; those that are optional may be missing."""
    names = dict.fromkeys([*RUNS, *OPTIONAL])
    present = [name for name in names if name not in OPTIONAL or Path(folder, name, SNAPSHOTS[on]).exists()]
    return {name: read_snapshots(Path(folder, name), on) for name in present}


def is_complete(folder: str | Path, steps: int, on: Sequence[str] = ("valid",)) -> bool:
    """Whether a training run has reached its last step; raises if it was evaluated on other sets."""
    taken = {name: len(list(Path(folder, place).glob("*.safetensors"))) for name, place in SNAPSHOTS.items()}
    if (missing := [name for name in on if not taken[name]]) and max(taken.values()) > 1:  # 1: killed between the sets
        problem = f"but {folder} has no snapshots on {missing[0]}"
        raise InputError("--on", list(on), problem, "choose another --output_dir")
    return all(Path(folder, SNAPSHOTS[name], f"{steps}.safetensors").exists() for name in on)


def word_agreements(u: Tensor, v: Tensor, kept: Tensor, measure: str = "agreement") -> Tensor:
    """A measure [N] of u and v [N, L] at kept positions [N, L]; NaN for words without it (tau needs pairs)."""
    check_choice("measure", measure, MEASURES)
    if u.shape != v.shape:
        problem = f"have the shapes {list(u.shape)} and {list(v.shape)}"
        raise InputError("u, v", None, problem, "take snapshots on the same validation set")
    pieces = (z.masked_fill(~kept, 0).double().split(_ROWS) for z in (u, v))
    return torch.cat([MEASURES[measure](*piece) for piece in zip(*pieces, kept.split(_ROWS), strict=True)])


def learning_curves(runs: Runs, measure: str = "agreement") -> list[Row]:
    """Agreement with the end of the standard training, by one of `MEASURES`, and performance.

    Rows have statistic, step, value, and margin: half the 95 % interval of an agreement over the sentences.

    Training runs other than "standard" may be missing; the curves that need them are then left out.
    """
    end = last(runs, "standard")
    rows: list[Row] = []

    def add(name: str, step: int, value: float, margin: float | None = None) -> None:
        rows.append({"statistic": name, "step": step, "value": value, "margin": margin})

    def compare(name: str, step: int, u: Tensor, v: Tensor) -> None:
        found = word_agreements(u, v, end.kept, measure)
        margin = None if end.sentences is None else half_interval(bootstrap_means(found, end.sentences))
        add(name, step, found.nanmean().item(), margin)

    for name, (own, run, other) in CURVES.items():
        for step, snapshot in runs.get(run, {}).items():
            if own in end.scores:
                compare(name, step, end.scores[own], snapshot.scores[other])
    for name, run in BAGS.items():
        for step, snapshot in runs.get("uniform", {}).items() if runs.get(run) else ():
            bag = last(runs, run).scores["beta"]
            compare(name, step, snapshot.scores["beta"], bag)
    for own in ("alpha", "alpha_opt"):
        if own in end.scores and "beta" in end.scores:
            compare(f"A({own},beta)", max(runs["standard"]), end.scores[own], end.scores["beta"])
    random = random_agreement(end.kept).mean().item() if measure == "agreement" else 0.0
    add("A(random)", max(runs["standard"]), random)
    for run, snapshots in runs.items():
        for step, snapshot in snapshots.items():
            add(f"performance({run})", step, snapshot.performance)
            if snapshot.bleu is not None:
                add(f"bleu({run})", step, snapshot.bleu)
    return rows


def table_row(curves: list[Row], performance: str = "accuracy") -> Row:
    """The row of table 5 with the columns of tables 10, 11 and appendix A.1, in percent; None for missing values.

    A(alpha,beta_uf) is the largest value in the uniform training (appendix A.7), and the other columns use beta_uf of
    that step; A(alpha,alpha_fr) is the largest value in the training of the attention alone (appendix A.6). `starred`
    lists each xi for which the second seed never agrees as well, `margin(...)` are half intervals of agreements.
    """
    check_choice("performance", performance, PERFORMANCES)

    def curve(name: str) -> dict[int, float]:
        return {row["step"]: 100 * row["value"] for row in curves if row["statistic"] == name}

    alpha_uf, frozen = curve("A(alpha,beta_uf)"), curve("A(alpha,alpha_fr)")
    best = best_first(sorted(alpha_uf), alpha_uf.__getitem__, score)[0] if alpha_uf else -1
    steps: dict[str, Any] = dict.fromkeys(("A(alpha,beta_uf)", "A(delta,beta_uf)", *BAGS), best)
    steps |= {name: next(iter(curve(name)), None) for name in LEVELS}
    steps["A(alpha,alpha_fr)"] = max(frozen, key=frozen.__getitem__, default=None)
    row: Row = {name: curve(name).get(step) for name, step in steps.items()}
    margins = {(row["statistic"], row["step"]): row["margin"] for row in curves}
    row |= {f"margin({name[2:]}": _percent(margins.get((name, step))) for name, step in steps.items()}
    statistic = {"accuracy": "performance", "bleu": "bleu"}[performance]
    second, standard = (curve(f"{statistic}({run})") for run in ("second_seed", "standard"))
    if not standard:
        remedy = "train with --performance bleu in another folder"
        raise InputError("performance", performance, "was not measured in these snapshots", remedy)
    row |= _contextualized(row, curve("A(alpha,alpha_2)"), second)
    row["xi*"] = second[max(second)] if second else standard[max(standard)]
    return row | {"best uniform step": best if alpha_uf else None}


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _contextualized(row: Row, second: dict[int, float], performance: dict[int, float]) -> Row:
    """xi of all pairs of a row, from the agreement and performance of the second seed, and the starred names."""
    found: Row = {}
    starred = []
    for pair in PAIRS:
        value, name = row[f"A({pair})"], f"xi({pair})"
        if value is None or not second:
            found[name] = None
            continue
        xi = contextualized_agreement(value, second, performance)
        found[name] = xi.performance
        starred += [name] if xi.step is None else []
    return found | {"starred": " ".join(starred)}


def last(runs: Runs, name: str) -> Snapshot:
    """The last snapshot of a training run."""
    if not runs.get(name):
        raise InputError("runs", list(runs), f"has no snapshots of {name!r}", "train it first")
    return runs[name][max(runs[name])]
