"""How attention learns, on toy tasks (snell2021, sections 3.3, 5.2, 6.1, 6.2, appendices A.3, A.6).

Examples:
    # copying permutations of 40 words, and of 40 of 60 words (figure 3 left)
    python trainer_scripts/study_toy_attention.py copying --output_dir runs/toy

    # all others but heads
    python trainer_scripts/study_toy_attention.py copying mixture permuted locality frozen --output_dir runs/toy

    # heads: other settings find no bad ones
    python trainer_scripts/study_toy_attention.py heads --output_dir runs/heads --steps 140 \
        --candidates 24 --trials 1 --model_seed 7

Studies:
    copying    permutations of the same 40 words against 40 of 60 words
    mixture    permutations of one of two sets of 40 words against 40 of 80 words (figure 3 right)
    permuted   output in one fixed random order against copying (section 6.2)
    heads      8 heads of which all are bad, one is good, or that are drawn at random (figure 6); first weights of a
               head are good if a model with this one head learns to copy permutations, and bad if it fails, with all
               of --trials data seeds
    locality   log-odds of the keyword's state, the next one, their mean and the last one under uniform attention
               (figure 7)
    frozen     attention learned while all else stays as it was drawn, and lexical probe under uniform attention: which
               agrees with attention as it is usually learned? (table 10)

Each writes STUDY.png and its numbers as STUDY.csv into --output_dir, and prints a table. All seeds of a condition are
trained side by side. The same command run again goes on where it was stopped.

A copier has learned when at least 95 % of the test's words are right at the end (the words before them are given), and
has failed below 60 %. A model that only knows which words it has not written yet is right for 11 % of them.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.launch import run_script

LEARNED, FAILED = 0.95, 0.6
Row = dict[str, Any]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=STUDIES, metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument(
        "--output_dir", type=Path, required=True, help="Folder of figures, numbers and states of runs."
    )
    parser.add_argument("--seeds", type=int, default=20, help="Models of each kind of run.")
    parser.add_argument("--steps", type=int, default=200, help="Of training of copiers.")
    parser.add_argument("--classifier_steps", type=int, default=1000, help="Of training of keyword classifiers.")
    parser.add_argument("--eval_steps", type=int, default=10, help="Between two tests.")
    parser.add_argument("--hidden_size", type=int, default=64, help="Of states and embeddings; 256 in the paper.")
    parser.add_argument("--batch_size", type=int, default=32, help="Sequences a step.")
    parser.add_argument("--test_size", type=int, default=50, help="Sequences of the test, other ones for each seed.")
    parser.add_argument("--learning_rate", type=float, default=3e-3, help="Of Adam.")
    parser.add_argument("--heads", type=int, default=8, help="K of the study of heads.")
    parser.add_argument("--candidates", type=int, default=32, help="Heads that are tried alone.")
    parser.add_argument("--trials", type=int, default=2, help="Data seeds each of them is tried with.")
    parser.add_argument("--model_seed", type=int, default=0, help="Of all weights but the heads', in that study.")
    return parser


@dataclass(frozen=True)
class Member:
    """One model among those side by side: seeds of its weights, of each head's weights, and of its data."""

    model: int
    heads: tuple[int, ...]
    data: int


# ------------------------------------------------------------------------------------------------------------ copying
def new_translator(words: int, hidden_size: int, member: Member) -> Any:
    """LSTM translator of one layer and direction; PyTorch's own first weights, those of each head by its own seed."""
    import numpy as np
    import torch

    from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig, LuongSeq2SeqForConditionalGeneration

    settings: dict[str, Any] = {"vocab_size": words + 1, "embedding_size": hidden_size, "hidden_size": hidden_size}
    settings |= {"encoder_layers": 1, "decoder_layers": 1, "bidirectional": False}
    settings |= {"attention_heads": len(member.heads), "dropout": 0.0}
    settings |= {"decoder_start_token_id": words, "pad_token_id": words, "eos_token_id": None}
    model: Any = LuongSeq2SeqForConditionalGeneration(LuongSeq2SeqConfig(**settings))
    first_weights(model, member.model)
    bound = hidden_size**-0.5
    drawn = [np.random.default_rng([seed]).uniform(-bound, bound, (hidden_size,) * 2) for seed in member.heads]
    with torch.no_grad():
        model.attention.weight.weight.copy_(torch.tensor(np.concatenate(drawn)))
    return model


def first_weights(model: Any, seed: int) -> None:
    """PyTorch's own for each layer; those of the attention are the last ones to be drawn."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [module for module in model.modules() if hasattr(module, "reset_parameters")]
        own = set(model.attention.modules())
        for layer in sorted(layers, key=own.__contains__):
            layer.reset_parameters()


def copy(args: argparse.Namespace, name: str, task_name: str, members: Sequence[Member]) -> list[Row]:
    """Accuracy of copiers over their training, as rows."""
    import numpy as np
    import torch

    from hf_nmt_interp.studies.side_by_side import StackedTranslators
    from hf_nmt_interp.studies.toy_tasks import COPY_TASKS, TEST

    task = COPY_TASKS[task_name]
    stack = StackedTranslators([new_translator(task.words, args.hidden_size, member) for member in members])

    def batch(step: int, size: int = args.batch_size) -> Any:
        drawn = [task.draw(member.data, step, size) for member in members]
        return tuple(torch.from_numpy(np.stack(side)) for side in zip(*drawn, strict=True))

    source, target = batch(TEST, args.test_size)

    def evaluate() -> dict[str, Any]:
        return {"accuracy": (stack(source, target)[0].argmax(-1) == target).float().mean((1, 2))}  # [R]

    records = run(args, name, stack, batch, evaluate, args.steps)
    return rows_of(name, records, "accuracy")


def run(args: argparse.Namespace, name: str, stack: Any, batch: Any, evaluate: Any, steps: int) -> list[Row]:
    """Train, with the state of the run and its results in a file of its own."""
    from hf_nmt_interp.studies.side_by_side import train

    print(f"{name}: {len(next(iter(stack.weights.values())))} models side by side", file=sys.stderr, flush=True)
    file = args.output_dir / f"{name.replace(' ', '-')}.safetensors"
    settings: dict[str, Any] = {"eval_steps": args.eval_steps, "learning_rate": args.learning_rate}
    return train(stack, batch, evaluate, steps=steps, file=file, **settings)


def rows_of(curve: str, records: Sequence[Row], value: str) -> list[Row]:
    """A row for each seed and step from records of tensors [R]."""
    return [
        {"curve": curve, "seed": seed, "step": record["step"], "value": found}
        for record in records
        for seed, found in enumerate(record[value].tolist())
    ]


def summary(rows: Sequence[Row]) -> list[Row]:
    """For each curve: how many seeds have learned and failed, their median step of 95 %, accuracies at the end."""
    from hf_nmt_interp.report.seed_curves import runs_of

    found = []
    for curve, runs in runs_of(rows).items():
        final = [run[max(run)] for run in runs.values()]
        reached = [min(good) for run in runs.values() if (good := [s for s, value in run.items() if value >= LEARNED])]
        found.append(
            {
                "condition": curve,
                "seeds": len(runs),
                "learned": sum(value >= LEARNED for value in final),
                "failed": sum(value < FAILED for value in final),
                "steps to 95 %": f"{median(reached):g}" if reached else "-",
                "accuracy": f"{mean(final):.1%}",
                "from": f"{min(final):.1%}",
                "to": f"{max(final):.1%}",
            }
        )
    return found


def study_copying(args: argparse.Namespace, conditions: Sequence[str]) -> tuple[list[Row], list[Row], str]:
    """The same seeds on two tasks."""
    members = [Member(seed, (seed,), seed) for seed in range(args.seeds)]
    rows = [row for name in conditions for row in copy(args, name, name, members)]
    return rows, summary(rows), "accuracy"


# -------------------------------------------------------------------------------------------------------------- heads
def try_heads(args: argparse.Namespace) -> tuple[list[Row], list[int], list[int]]:
    """Models of one head each, all other weights equal: rows, and which first weights are good and which bad."""
    tried = [(head, trial) for head in range(args.candidates) for trial in range(args.trials)]
    rows = copy(args, "single head", "40-of-40", [Member(args.model_seed, (head,), trial) for head, trial in tried])
    final = {tried[row["seed"]]: row["value"] for row in rows if row["step"] == args.steps}

    def heads(is_so: Callable[[float], bool]) -> list[int]:
        return [h for h in range(args.candidates) if all(is_so(final[h, trial]) for trial in range(args.trials))]

    return rows, heads(lambda value: value >= LEARNED), heads(lambda value: value < FAILED)


def study_heads(args: argparse.Namespace) -> tuple[list[Row], list[Row], str]:
    """K heads of which all are bad, one is good, or drawn at random (section 5.2)."""
    import numpy as np

    rows, good, bad = try_heads(args)
    print(f"of {args.candidates} heads {len(good)} are good, {len(bad)} are bad", file=sys.stderr, flush=True)
    if len(bad) < args.heads or not good:
        raise InputError(
            f"--candidates {args.candidates}: {len(good)} good and {len(bad)} bad heads found, 1 and {args.heads} are "
            "needed; raise it, or take another --model_seed or --output_dir with other --steps"
        )

    def drawn(pool: Sequence[int], number: int, seed: int) -> tuple[int, ...]:
        return tuple(np.random.default_rng([seed, number]).permutation(pool)[:number].tolist())

    k, seeds = args.heads, range(args.seeds)
    scenarios = {
        "all heads bad": [drawn(bad, k, seed) for seed in seeds],
        "one head good": [drawn(bad, k - 1, seed) + drawn(good, 1, seed) for seed in seeds],
        "random heads": [tuple(args.candidates + seed * k + i for i in range(k)) for seed in seeds],
    }
    for name, heads in scenarios.items():
        members = [Member(args.model_seed, heads[seed], args.trials + seed) for seed in seeds]
        rows += copy(args, name, "40-of-40", members)
    return rows, summary(rows), "accuracy"


# ------------------------------------------------------------------------------------------------------------ keyword
GAMMAS = {"keyword": "γ of the keyword", "next": "γ of the next", "mean": "mean γ", "last": "γ of the last"}


def classify(args: argparse.Namespace, name: str) -> list[Row]:
    """Records of keyword classifiers over their training: "standard", "uniform" or "frozen" (all but the attention).

    Accuracy and gammas are [R]; scores [R, N, 40] on the test's positive sequences are alpha, or gamma if uniform.
    """
    import numpy as np
    import torch

    from hf_nmt_interp.models.lstm import LSTMAttentionConfig, LSTMAttentionForSequenceClassification
    from hf_nmt_interp.studies.side_by_side import StackedClassifiers
    from hf_nmt_interp.studies.toy_tasks import LENGTH, TEST, draw_keyword

    mode = "uniform" if name == "uniform" else "learned"
    settings: dict[str, Any] = {"vocab_size": LENGTH, "num_labels": 2, "attention_mode": mode}
    settings |= {"embedding_size": args.hidden_size, "hidden_size": args.hidden_size}
    models = [LSTMAttentionForSequenceClassification(LSTMAttentionConfig(**settings)) for _ in range(args.seeds)]
    for seed, model in enumerate(models):
        first_weights(model, seed)
    stack = StackedClassifiers(models)
    if name == "frozen":
        stack.freeze("attention.")

    def batch(step: int) -> Any:
        drawn = [draw_keyword(seed, step, args.batch_size) for seed in range(args.seeds)]
        x, place = (torch.from_numpy(np.stack(side)) for side in zip(*drawn, strict=True))
        return x, (place >= 0).long()

    x, place = (torch.from_numpy(side) for side in draw_keyword(0, TEST, args.test_size))

    def evaluate() -> dict[str, Any]:
        logits, weights, alone = stack(x.expand(args.seeds, *x.shape))
        gamma = alone[..., 1] - alone[..., 0]  # [R, B, S]
        found = {"accuracy": (logits.argmax(-1) == (place >= 0)).float().mean(1)}
        found["scores"] = (gamma if mode == "uniform" else weights)[:, place >= 0].clone()
        return found | gammas(gamma, place)

    return run(args, f"keyword {name}", stack, batch, evaluate, args.classifier_steps)


def gammas(gamma: Any, place: Any) -> dict[str, Any]:
    """Mean log-odds [R] at l*, l* + 1, over all l, and at L, from gamma [R, B, S] and l* [B], where l* + 1 < L."""
    import torch

    rows = ((place >= 0) & (place + 2 < gamma.shape[-1])).nonzero()[:, 0]
    chosen, at = gamma[:, rows], place[rows]
    each = torch.arange(len(rows))
    found = (chosen[:, each, at], chosen[:, each, at + 1], chosen.mean(-1), chosen[..., -1])
    return {name: values.mean(1) for name, values in zip(GAMMAS, found, strict=True)}


def study_locality(args: argparse.Namespace) -> tuple[list[Row], list[Row], str]:
    """Log-odds gamma of single states under uniform attention (section 6.1)."""
    records = classify(args, "uniform")
    rows = [row for name, label in GAMMAS.items() for row in rows_of(label, records, name)]
    table = []
    for record in records:
        means = {label: f"{record[name].mean():.2f}" for name, label in GAMMAS.items()}
        table.append({"step": record["step"], "accuracy": f"{record['accuracy'].mean():.1%}", **means})
    shown = {0, len(table) - 1, *(len(table) * i // 8 for i in range(8))}
    return rows, [row for i, row in enumerate(table) if i in shown], "log-odds γ"


def study_frozen(args: argparse.Namespace) -> tuple[list[Row], list[Row], str]:
    """A(alpha, alpha_fr) against A(alpha, beta_uf) (appendix A.6); alpha is of another seed's weights and data."""
    from hf_nmt_interp.metrics.agreement.score import agreement, random_agreement

    if args.seeds < 2:
        raise InputError(f"--seeds {args.seeds}: attention is compared with another seed's; take 2 or more")
    alpha = classify(args, "standard")[-1]["scores"].roll(1, 0)  # [R, N, S]
    curves = {"A(α, α frozen β)": "frozen", "A(α, β uniform)": "uniform", "A(α, α other seed)": "standard"}
    rows, table = [], []
    for label, name in curves.items():
        records = classify(args, name)
        for record in records:
            record["agreement"] = agreement(alpha, record["scores"]).mean(1)
        rows += rows_of(label, records, "agreement")
        best = max(records, key=lambda record: record["agreement"].mean())
        found = {"highest": f"{best['agreement'].mean():.1%}", "at step": best["step"]}
        table.append({"agreement": label, **found, "accuracy at the end": f"{records[-1]['accuracy'].mean():.1%}"})
    chance = random_agreement(alpha[0, :1] >= 0).mean().item()
    table.append(dict.fromkeys(table[0], "") | {"agreement": "Â (random)", "highest": f"{chance:.1%}"})
    return rows, table, "agreement"


STUDIES: dict[str, Callable[[argparse.Namespace], tuple[list[Row], list[Row], str]]] = {
    "copying": partial(study_copying, conditions=("40-of-40", "40-of-60")),
    "mixture": partial(study_copying, conditions=("mixture", "40-of-80")),
    "permuted": partial(study_copying, conditions=("permuted", "40-of-60")),
    "heads": study_heads,
    "locality": study_locality,
    "frozen": study_frozen,
}


def check_settings(args: argparse.Namespace) -> None:
    """Refuse impossible settings, and a folder of runs with other ones."""
    for name, value in vars(args).items():
        if isinstance(value, int) and value < (name != "model_seed"):
            raise InputError(f"--{name} {value}: is too small; take 1 or more")
    for name in ("steps", "classifier_steps"):
        if getattr(args, name) % args.eval_steps:
            raise InputError(f"--{name} {getattr(args, name)}: take a multiple of --eval_steps {args.eval_steps}")
    settings = {name: value for name, value in vars(args).items() if name not in ("studies", "output_dir")}
    file = args.output_dir / "settings.json"
    args.output_dir.mkdir(parents=True, exist_ok=True)
    if file.exists() and (before := json.loads(file.read_text())) != settings:
        changed = ", ".join(f"{name}={before.get(name)}" for name in settings if before.get(name) != settings[name])
        raise InputError(f"--output_dir {args.output_dir}: its runs have {changed}; take the same, or another folder")
    file.write_text(json.dumps(settings, indent=1) + "\n")


def main() -> None:
    args = make_parser().parse_args()
    check_settings(args)

    from rich.console import Console

    from hf_nmt_interp.report.seed_curves import plot_seeds
    from hf_nmt_interp.report.terminal import table

    for name in args.studies:
        rows, summary_rows, label = STUDIES[name](args)
        plot_seeds(rows, args.output_dir / f"{name}.png", label)
        Console().print(table(summary_rows))


if __name__ == "__main__":
    run_script(main)
