"""Studies of how attention learns on toy tasks (snell2021, sections 3.3, 5.2, 6.1, 6.2, appendices A.3, A.6).

Definitions: docs/methods.md, How attention learns.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics import best_first
from hf_nmt_interp.metrics.agreement import score
from hf_nmt_interp.metrics.agreement.score import agreement, random_agreement
from hf_nmt_interp.models import lstm
from hf_nmt_interp.studies.side_by_side import StackedClassifiers, StackedTranslators, train
from hf_nmt_interp.studies.toy_tasks import COPY_TASKS, LENGTH, TEST, draw_keyword
from hf_nmt_interp.text.files import write_whole

LEARNED, FAILED = 0.95, 0.6
GAMMAS = {"keyword": "γ of the keyword", "next": "γ of the next", "mean": "mean γ", "last": "γ of the last"}
Row = dict[str, Any]


@dataclass(frozen=True)
class ToySettings:
    """Sizes of the toy studies, and the folder of their runs."""

    output_dir: Path = field(metadata={"help": "Folder for figures, numbers and states of runs."})
    seeds: int = field(default=20, metadata={"help": "Models (seeds) per kind of run."})
    steps: int = field(default=200, metadata={"help": "Training steps of copiers."})
    classifier_steps: int = field(default=1000, metadata={"help": "Training steps of keyword classifiers."})
    eval_steps: int = field(default=10, metadata={"help": "Steps between two tests."})
    hidden_size: int = field(default=64, metadata={"help": "Size of states and embeddings; 256 in the paper."})
    batch_size: int = field(default=32, metadata={"help": "Sequences per step."})
    test_size: int = field(default=50, metadata={"help": "Test sequences, different ones for each seed."})
    learning_rate: float = field(default=3e-3, metadata={"help": "Learning rate of Adam."})
    heads: int = field(default=8, metadata={"help": "Number K of heads in the study of heads."})
    candidates: int = field(default=32, metadata={"help": "Single heads to try."})
    trials: int = field(default=2, metadata={"help": "Data seeds to try each of them with."})
    model_seed: int = field(default=0, metadata={"help": "Seed of all weights except the heads', in that study."})
    bidirectional: bool = field(default=True, metadata={"help": "Keyword classifiers read in both directions."})

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) is int and value < (name != "model_seed"):
                raise InputError(f"--{name}", value, "is too small", "use at least 1")
        for name in ("steps", "classifier_steps"):
            if (steps := getattr(self, name)) % self.eval_steps:
                raise InputError(f"--{name}", steps, f"is not a multiple of --eval_steps {self.eval_steps}")

    def keep(self) -> None:
        """Write the settings to the folder; raises if its runs have other settings."""
        settings = asdict(self)
        del settings["output_dir"]
        file = self.output_dir / "settings.json"
        # folders from before this setting existed contain bidirectional runs
        if file.exists() and (before := {"bidirectional": True} | json.loads(file.read_text())) != settings:
            changed = [f"{name}={before.get(name)}" for name in settings if before.get(name) != settings[name]]
            problem = f"has runs with {', '.join(changed)}"
            raise InputError("--output_dir", str(self.output_dir), problem, "use the same, or another folder")
        write_whole(file, json.dumps(settings, indent=1) + "\n")


@dataclass(frozen=True)
class Member:
    """One of the models trained in parallel: seeds of its weights, of each head's weights, and of its data."""

    model: int
    heads: tuple[int, ...]
    data: int


# ------------------------------------------------------------------------------------------------------------ copying
def new_translator(words: int, hidden_size: int, member: Member) -> Any:
    """LSTM translator with one layer and direction, initialised by PyTorch; each head's weights have a seed."""
    settings: dict[str, Any] = {"vocab_size": words + 1, "embedding_size": hidden_size, "hidden_size": hidden_size}
    settings |= {"encoder_layers": 1, "decoder_layers": 1, "bidirectional": False}
    settings |= {"attention_heads": len(member.heads), "dropout": 0.0}
    settings |= {"decoder_start_token_id": words, "pad_token_id": words, "eos_token_id": None}
    model: Any = lstm.LuongSeq2SeqForConditionalGeneration(lstm.LuongSeq2SeqConfig(**settings))
    first_weights(model, member.model)
    bound = hidden_size**-0.5
    drawn = [np.random.default_rng([seed]).uniform(-bound, bound, (hidden_size,) * 2) for seed in member.heads]
    with torch.no_grad():
        model.attention.weight.weight.copy_(torch.tensor(np.concatenate(drawn)))
    return model


def first_weights(model: Any, seed: int) -> None:
    """PyTorch's default initialisation of each layer; the attention's weights are drawn last."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [module for module in model.modules() if hasattr(module, "reset_parameters")]
        own = set(model.attention.modules())
        for layer in sorted(layers, key=own.__contains__):
            layer.reset_parameters()


def copy(settings: ToySettings, name: str, task_name: str, members: Sequence[Member]) -> list[Row]:
    """Accuracy of copiers over their training, as rows."""
    task = COPY_TASKS[task_name]
    stack = StackedTranslators([new_translator(task.words, settings.hidden_size, member) for member in members])

    def batch(step: int, size: int = settings.batch_size) -> Any:
        drawn = [task.draw(member.data, step, size) for member in members]
        return tuple(torch.from_numpy(np.stack(side)) for side in zip(*drawn, strict=True))

    source, target = batch(TEST, settings.test_size)

    def evaluate() -> dict[str, Tensor]:
        return {"accuracy": (stack(source, target)[0].argmax(-1) == target).float().mean((1, 2))}  # [R]

    return rows_of(name, run(settings, name, stack, batch, evaluate, settings.steps), "accuracy")


def run(settings: ToySettings, name: str, stack: Any, batch: Any, evaluate: Any, steps: int) -> list[Row]:
    """Train; a file in the folder keeps the state of the run and its results."""
    print(f"{name}: {len(next(iter(stack.weights.values())))} models in parallel", file=sys.stderr, flush=True)
    file = settings.output_dir / f"{name.replace(' ', '-')}.safetensors"
    options: dict[str, Any] = {"eval_steps": settings.eval_steps, "learning_rate": settings.learning_rate}
    return train(stack, batch, evaluate, steps=steps, file=file, **options)


def rows_of(curve: str, records: Sequence[Row], value: str) -> list[Row]:
    """A row for each seed and step from records of tensors [R]."""
    return [
        {"curve": curve, "seed": seed, "step": record["step"], "value": found}
        for record in records
        for seed, found in enumerate(record[value].tolist())
    ]


def runs_of(rows: Sequence[Row]) -> dict[str, dict[int, dict[int, float]]]:
    """Values by curve, seed and step.

    >>> runs_of([{"curve": "a", "seed": 0, "step": 10, "value": 0.5}])
    {'a': {0: {10: 0.5}}}
    """
    found: dict[str, dict[int, dict[int, float]]] = {}
    for row in rows:
        found.setdefault(row["curve"], {}).setdefault(row["seed"], {})[row["step"]] = row["value"]
    return found


def summary(rows: Sequence[Row]) -> list[Row]:
    """For each curve: how many seeds learned and failed, the median step of 95 %, and the final accuracies."""
    found = []
    for curve, runs in runs_of(rows).items():
        final = [run[max(run)] for run in runs.values()]
        reached = [min(good) for run in runs.values() if (good := [s for s, value in run.items() if value >= LEARNED])]
        row = {"condition": curve, "seeds": len(runs), "learned": sum(value >= LEARNED for value in final)}
        row |= {"failed": sum(value < FAILED for value in final)}
        row |= {"steps to 95 %": f"{median(reached):g}" if reached else "-"}
        ends = {"accuracy": mean(final), "from": min(final), "to": max(final)}
        found.append(row | {name: f"{value:.1%}" for name, value in ends.items()})
    return found


def study_copying(settings: ToySettings, conditions: Sequence[str]) -> tuple[list[Row], list[Row], str]:
    """The same seeds on two tasks."""
    members = [Member(seed, (seed,), seed) for seed in range(settings.seeds)]
    rows = [row for name in conditions for row in copy(settings, name, name, members)]
    return rows, summary(rows), "accuracy"


# -------------------------------------------------------------------------------------------------------------- heads
def try_heads(settings: ToySettings) -> tuple[list[Row], list[int], list[int]]:
    """Models with one head each and otherwise equal weights: rows, and which initial weights are good or bad."""
    heads, trials = range(settings.candidates), range(settings.trials)
    members = [Member(settings.model_seed, (head,), trial) for head in heads for trial in trials]
    rows = copy(settings, "single head", "40-of-40", members)
    final = np.array([row["value"] for row in rows if row["step"] == settings.steps]).reshape(len(heads), -1)
    good, bad = (np.flatnonzero(is_so.all(1)).tolist() for is_so in (final >= LEARNED, final < FAILED))
    return rows, good, bad


def study_heads(settings: ToySettings) -> tuple[list[Row], list[Row], str]:
    """Models with K heads that are all bad, of which one is good, or that are random (section 5.2)."""
    rows, good, bad = try_heads(settings)
    first, k, seeds = settings.candidates, settings.heads, range(settings.seeds)
    print(f"of {first} heads {len(good)} are good, {len(bad)} are bad", file=sys.stderr, flush=True)
    if len(bad) < k or not good:
        problem = f"gave {len(good)} good and {len(bad)} bad heads, but 1 and {k} are needed"
        raise InputError("--candidates", first, problem, "increase it, or use another --model_seed and --output_dir")

    def drawn(pool: Sequence[int], number: int, seed: int) -> tuple[int, ...]:
        return tuple(np.random.default_rng([seed, number]).permutation(pool)[:number].tolist())

    scenarios = {
        "all heads bad": [drawn(bad, k, seed) for seed in seeds],
        "one head good": [drawn(bad, k - 1, seed) + drawn(good, 1, seed) for seed in seeds],
        "random heads": [tuple(first + seed * k + i for i in range(k)) for seed in seeds],
    }
    for name, heads in scenarios.items():
        members = [Member(settings.model_seed, heads[seed], settings.trials + seed) for seed in seeds]
        rows += copy(settings, name, "40-of-40", members)
    return rows, summary(rows), "accuracy"


# ------------------------------------------------------------------------------------------------------------ keyword
def classify(settings: ToySettings, name: str) -> list[Row]:
    """Records of keyword classifiers over their training: "standard", "uniform" or "frozen" (all but the attention).

    Accuracy and gammas are [R]; scores [R, N, 40] on the positive test sequences are alpha, or gamma if uniform.
    """
    mode, seeds = "uniform" if name == "uniform" else "learned", range(settings.seeds)
    sizes: dict[str, Any] = {"vocab_size": LENGTH, "num_labels": 2, "attention_mode": mode}
    sizes |= {"embedding_size": settings.hidden_size, "hidden_size": settings.hidden_size}
    sizes |= {"bidirectional": settings.bidirectional}
    config = lstm.LSTMAttentionConfig(**sizes)
    models = [lstm.LSTMAttentionForSequenceClassification(config) for _ in seeds]
    for seed, model in enumerate(models):
        first_weights(model, seed)
    stack = StackedClassifiers(models)
    if name == "frozen":
        stack.freeze("attention.")

    def batch(step: int) -> Any:
        drawn = [draw_keyword(seed, step, settings.batch_size) for seed in seeds]
        x, place = (torch.from_numpy(np.stack(side)) for side in zip(*drawn, strict=True))
        return x, (place >= 0).long()

    x, place = (torch.from_numpy(side) for side in draw_keyword(0, TEST, settings.test_size))

    def evaluate() -> dict[str, Tensor]:
        logits, weights, alone = stack(x.expand(len(seeds), *x.shape))
        gamma = alone[..., 1] - alone[..., 0]  # [R, B, S]
        found = {"accuracy": (logits.argmax(-1) == (place >= 0)).float().mean(1)}
        found["scores"] = (gamma if mode == "uniform" else weights)[:, place >= 0].clone()
        return found | gammas(gamma, place)

    return run(settings, f"keyword {name}", stack, batch, evaluate, settings.classifier_steps)


def gammas(gamma: Tensor, place: Tensor) -> dict[str, Tensor]:
    """Mean log-odds [R] at l*, l* + 1, over all l, and at L, from gamma [R, B, S] and l* [B], where l* + 1 < L."""
    rows = ((place >= 0) & (place + 2 < gamma.shape[-1])).nonzero()[:, 0]
    chosen, at = gamma[:, rows], place[rows]
    each = torch.arange(len(rows))
    found = (chosen[:, each, at], chosen[:, each, at + 1], chosen.mean(-1), chosen[..., -1])
    return {name: values.mean(1) for name, values in zip(GAMMAS, found, strict=True)}


def study_locality(settings: ToySettings) -> tuple[list[Row], list[Row], str]:
    """Log-odds gamma of single states under uniform attention (section 6.1)."""
    records = classify(settings, "uniform")
    rows = [row for name, label in GAMMAS.items() for row in rows_of(label, records, name)]
    table = []
    for record in records:
        means = {label: f"{record[name].mean():.2f}" for name, label in GAMMAS.items()}
        table.append({"step": record["step"], "accuracy": f"{record['accuracy'].mean():.1%}", **means})
    shown = {0, len(table) - 1, *(len(table) * i // 8 for i in range(8))}
    return rows, [row for i, row in enumerate(table) if i in shown], "log-odds γ"


def study_frozen(settings: ToySettings) -> tuple[list[Row], list[Row], str]:
    """A(alpha, alpha_fr) against A(alpha, beta_uf) (appendix A.6); alpha has another seed for weights and data."""
    if settings.seeds < 2:
        raise InputError("--seeds", settings.seeds, "leaves no other seed to compare attention with", "use at least 2")
    alpha = classify(settings, "standard")[-1]["scores"].roll(1, 0)  # [R, N, S]
    curves = {"A(α, α frozen β)": "frozen", "A(α, β uniform)": "uniform", "A(α, α other seed)": "standard"}
    rows, table = [], []
    for label, name in curves.items():
        records = classify(settings, name)
        for record in records:
            record["agreement"] = agreement(alpha, record["scores"]).mean(1)
        rows += rows_of(label, records, "agreement")
        best = best_first(records, lambda record: record["agreement"].mean(), score)[0]
        found = {"highest": f"{best['agreement'].mean():.1%}", "at step": best["step"]}
        table.append({"agreement": label, **found, "accuracy at the end": f"{records[-1]['accuracy'].mean():.1%}"})
    chance = random_agreement(alpha[0, :1] >= 0).mean().item()
    table.append(dict.fromkeys(table[0], "") | {"agreement": "Â (random)", "highest": f"{chance:.1%}"})
    return rows, table, "agreement"


# from settings to rows of the figure, rows of the table, and the label of the y axis
STUDIES: dict[str, Callable[[ToySettings], tuple[list[Row], list[Row], str]]] = {
    "copying": partial(study_copying, conditions=("40-of-40", "40-of-60")),
    "mixture": partial(study_copying, conditions=("mixture", "40-of-80")),
    "permuted": partial(study_copying, conditions=("permuted", "40-of-60")),
    "heads": study_heads,
    "locality": study_locality,
    "frozen": study_frozen,
}
