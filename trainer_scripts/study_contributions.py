"""Study what a translator relies on and how training changes it (voita2021, sections 4 to 7).

Examples:
    # section 4: one translator with references, its own translations and random sentences as prefixes
    python trainer_scripts/study_contributions.py box --output_dir runs/study --held test.en test.de

    # appendix D: equal weight for both signs of relevance; sentences of two lengths
    python trainer_scripts/study_contributions.py box --output_dir runs/half --held test.en test.de \
        --set alpha=0.5 beta=0.5 --lengths 7 7 9 9

    # section 5: the same number of updates by maximum likelihood, word dropout and minimum risk training
    python trainer_scripts/study_contributions.py objectives --output_dir runs/study --train train.en train.de \
        --test test.en test.de --held valid.en valid.de test.en test.de --steps 125 --candidates 50

    # section 6: models trained on the first 10,000 and 40,000 pairs, compared with one trained on all of them
    python trainer_scripts/study_contributions.py amount --output_dir runs/study --train train.en train.de \
        --test test.en test.de --held valid.en valid.de test.en test.de --sizes 10000 40000

    # section 7: many checkpoints of one training run
    python trainer_scripts/study_contributions.py stages --output_dir runs/study --train train.en train.de \
        --test test.en test.de --held valid.en valid.de --steps 800 --every 25

Run the same command again to resume; complete training runs are not repeated. Other arguments are passed to every
training run, e.g. `--learning_rate 1e-4 --bf16 true`; see `train_translation.py`.

The output folder contains a folder for each training run, STUDY.svg with its numbers in STUDY.csv, and STUDY.json with
the table that is printed: BLEU on --test, means over steps and held-out pairs, training minutes.
"""

import argparse
import os
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.prefixes import PREFIXES
from hf_nmt_interp.training.launch import is_lone, only_run, run_script

BOX = "box"
QUIET = ["--report_to", "none", "--per_device_eval_batch_size", "50"]
# fine-tuning uses a small learning rate
GO_ON = "--learning_rate 5e-5 --lr_scheduler_type constant --tokens_per_batch 200 --logging_steps 5"
GO_ON += " --save_steps 25 --save_total_limit 1"
# new models are trained with a large one
NEW = "--learning_rate 1.2e-3 --adam_beta2 0.98 --label_smoothing_factor 0.1 --optim adamw_torch_fused"
AMOUNT = f"{NEW} --tokens_per_batch 2400 --warmup_steps 150 --save_steps 100 --save_total_limit 2"
STAGES = f"{NEW} --tokens_per_batch 2000 --warmup_steps 200 --lr_scheduler_type linear"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = parser.add_subparsers(dest="study", required=True, metavar="STUDY")
    for name, (run, prefixes, steps) in STUDIES.items():
        study = studies.add_parser(name, help=run.__doc__, allow_abbrev=False)
        study.set_defaults(run=run)
        study.add_argument(
            "--output_dir", type=Path, required=True, help="Folder for training runs, figure and numbers."
        )
        study.add_argument("--held", nargs="+", required=True, help="Pairs to analyse: two or four text files.")
        study.add_argument("--pairs", type=int, default=300, help="Maximum number of pairs.")
        help = "Source and target tokens, with EOS; one or more pairs of numbers (default: the most frequent)."
        study.add_argument("--lengths", type=int, nargs="+", default=[], metavar="N", help=help)
        help = "Also use pairs whose sides are up to N tokens shorter or longer."
        study.add_argument("--within", type=int, default=0, metavar="N", help=help)
        study.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="Settings of LRP.")
        study.add_argument("--prefix", nargs="+", choices=PREFIXES, default=prefixes, help="What the decoder reads.")
        if name != "stages":
            study.add_argument("--model", default="demo:en-de", help="Bundled translator, local folder or Hub id.")
        if steps:
            study.add_argument("--train", nargs="+", required=True, help="Two text files or one JSONL file.")
            study.add_argument("--test", nargs="+", required=True, help="Like --train; scored after each run.")
            study.add_argument("--steps", type=int, default=steps, help="Updates per training run.")
    objectives, amount, stages = (studies.choices[name] for name in ("objectives", "amount", "stages"))
    objectives.add_argument("--dropout", type=float, default=0.1, help="Share of replaced source or target words.")
    objectives.add_argument("--candidates", type=int, default=50, help="Candidates in minimum risk training.")
    objectives.add_argument("--alpha", type=float, default=0.005, help="Sharpness alpha in minimum risk training.")
    amount.add_argument("--sizes", type=int, nargs="+", default=[10_000, 40_000], help="Numbers of training pairs.")
    stages.add_argument("--vocab_size", type=int, default=6000, help="Size of the SentencePiece vocabulary.")
    stages.add_argument("--every", type=int, default=25, help="Steps between two checkpoints.")
    return parser


def study_box(args: argparse.Namespace) -> None:
    """Compare kinds of prefixes for one translator (section 4)."""
    report(args, {BOX: args.model})


def ways(args: argparse.Namespace) -> dict[str, tuple[str, list]]:
    """Script and arguments for each way to fine-tune a translator."""
    risk = ["--candidates", args.candidates, "--alpha", args.alpha, "--test_before", "false"]
    own: dict[str, list] = {"mle": [], "dropout": ["--target_word_dropout", args.dropout]}
    own |= {"source_dropout": ["--source_word_dropout", args.dropout], "mrt": risk}
    return {
        name: ("train_mrt" if name == "mrt" else "train_translation", ["--model", args.model, *GO_ON.split(), *words])
        for name, words in own.items()
    }


def study_objectives(args: argparse.Namespace) -> None:
    """Compare objectives for fine-tuning a translator (section 5)."""
    trainings = trainings_of(args)
    trainings.score(import_module("train_translation"), args.model, args.test)
    for name, (script, words) in ways(args).items():
        trainings.train(import_module(script), name, words)
    report(args, {BOX: args.model} | {name: str(args.output_dir / name) for name in ways(args)})


def study_amount(args: argparse.Namespace) -> None:
    """Compare amounts of training data (section 6)."""
    from hf_nmt_interp.training.arguments import open_split

    trainings, script = trainings_of(args), import_module("train_translation")
    pairs = list(islice(open_split(trainings.parse(script, "amount")[1], "train"), max(args.sizes)))
    if len(pairs) < max(args.sizes):
        raise InputError("--sizes", max(args.sizes), f"is more than the {len(pairs)} pairs of --train")
    trainings.score(script, args.model, args.test)
    for size in args.sizes:
        paths = [args.output_dir / f"first-{size}.{side}" for side in ("source", "target")]
        for path, lines in zip(paths, zip(*pairs[:size], strict=True), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        trainings.train(script, str(size), [*AMOUNT.split(), "--tokenizer", args.model, "--train", *paths])
    report(args, {str(size): str(args.output_dir / str(size)) for size in args.sizes} | {BOX: args.model})


def study_stages(args: argparse.Namespace) -> None:
    """Compare checkpoints of one training run (section 7)."""
    from hf_nmt_interp.training.checkpoints import list_checkpoints

    words = [*STAGES.split(), "--vocab_size", args.vocab_size, "--save_steps", args.every]
    trainings_of(args).train(import_module("train_translation"), "stages", words)
    report(args, {path.name: str(path) for path in list_checkpoints(args.output_dir / "stages")})


STUDIES: dict[str, tuple[Any, list[str], int]] = {  # function, kinds of prefixes, training steps
    BOX: (study_box, ["reference", "model", "random"], 0),
    "objectives": (study_objectives, ["random", "model"], 125),
    "amount": (study_amount, ["reference"], 400),
    "stages": (study_stages, ["reference", "random"], 800),
}


def trainings_of(args: argparse.Namespace) -> Any:
    """The training runs of a study."""
    from hf_nmt_interp.training.study_trainings import StudyTrainings

    first = ["--train", *args.train, "--test", *args.test, *QUIET]
    return StudyTrainings(args.output_dir, first, args.more, args.steps)


def report(args: argparse.Namespace, names: dict[str, str]) -> None:
    """Run the study on the named models; write the figure, its numbers and the table, and print the table."""
    from hf_nmt_interp.attribution.registry import parse_method_settings
    from hf_nmt_interp.cli.verbs.contributions import study_models
    from hf_nmt_interp.report.contributions import plot_training, write_study
    from hf_nmt_interp.studies.contribution_study import contribution_study
    from hf_nmt_interp.text.progress import progress_bars
    from hf_nmt_interp.training.job import command
    from hf_nmt_interp.training.study_trainings import results_of

    *_, last = names
    with progress_bars():
        study = contribution_study(
            *study_models(names, "auto"),
            *zip(*args.held, strict=True),
            prefixes=args.prefix,
            lengths=list(zip(args.lengths[::2], args.lengths[1::2], strict=True)) or None,
            within=args.within,
            limit=args.pairs,
            final=last if args.study == "stages" else None,
            **parse_method_settings("lrp", args.set),
        )
    results = {name: results_of(args.output_dir / name) for name in names}
    if results.get(BOX, {}).get("model") != names.get(BOX):
        results[BOX] = {}  # they belong to another study, with another model
    if args.study == "stages":
        plot_training(study, args.output_dir / "stages-training.svg")
        results[last] = results_of(args.output_dir / "stages")
    print(write_study(study, args.output_dir / f"{args.study}.svg", results, command()), end="")


def check(args: argparse.Namespace) -> None:
    """Read the held-out pairs, and report errors before training starts."""
    from hf_nmt_interp.attribution.registry import parse_method_settings
    from hf_nmt_interp.text.corpus import read_pairs

    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or is_lone():
        remedy = "train with train_*.py, and compare with hf-nmt-interp"
        raise InputError("launcher", None, "several processes are not supported", remedy)
    for name in ("pairs", "steps", "every", "sizes"):
        number = getattr(args, name, 1)
        if min(number if isinstance(number, list) else [number]) < 1:
            raise InputError(f"--{name}", number, "must be at least 1")
    if len(args.lengths) % 2:
        raise InputError("--lengths", " ".join(map(str, args.lengths)), "must be pairs of numbers, e.g. 20 23")
    parse_method_settings("lrp", args.set)
    if args.study == BOX and args.more:
        raise InputError(args.more[0], None, "is not supported, because this study trains no model")
    if args.study != BOX:
        for script, words in ways(args).values() if args.study == "objectives" else [("train_translation", [])]:
            trainings_of(args).parse(import_module(script), args.study, words)
    files = args.held
    if len(files) % 2:
        raise InputError("--held", None, f"{len(files)} files", "give two parallel text files, or four")
    args.held = [pair for both in zip(files[::2], files[1::2], strict=True) for pair in read_pairs(*both)]
    if not args.held:
        raise InputError("--held", None, f"no sentence pairs in {' and '.join(files)}")


def main() -> None:
    args, more = make_parser().parse_known_args()
    args.more = more
    check(args)
    with only_run(args.output_dir):
        args.run(args)


if __name__ == "__main__":
    run_script(main)
