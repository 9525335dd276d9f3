"""What a translator relies on, and how its training changes that (voita2021, sections 4 to 7): trains and compares.

Examples:
    # section 4: a translator with references, its own translations and random sentences for prefixes
    python trainer_scripts/study_contributions.py box --output_dir runs/study --held test.en test.de

    # section 5: the same number of updates by maximum likelihood, target word dropout and minimum risk training
    python trainer_scripts/study_contributions.py objectives --output_dir runs/study --train train.en train.de \
        --test test.en test.de --held valid.en valid.de test.en test.de --steps 125 --candidates 50

    # section 6: trained on the first 10,000 and 40,000 pairs, beside a translator that has seen them all
    python trainer_scripts/study_contributions.py amount --output_dir runs/study --train train.en train.de \
        --test test.en test.de --held valid.en valid.de test.en test.de --sizes 10000 40000

    # section 7: many checkpoints of one training
    python trainer_scripts/study_contributions.py stages --output_dir runs/study --train train.en train.de \
        --test test.en test.de --held valid.en valid.de --steps 800 --every 25

The same command run again goes on where it was stopped; a training that has ended is not repeated. What is not named
here goes to every training, e.g. `--learning_rate 1e-4 --bf16 true`; see `train_translation.py`.

The output folder gets a folder for each training, STUDY.svg with its numbers in STUDY.csv, and STUDY.json with the
table that is printed: BLEU of --test, means over steps and held-out pairs, minutes of training.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies import PREFIXES
from hf_nmt_interp.training.launch import is_lone, read_arguments, run_script

Row = dict[str, Any]
QUIET = ["--report_to", "none", "--per_device_eval_batch_size", "50"]
# a translator goes on as it is, with small steps
GO_ON = "--learning_rate 5e-5 --lr_scheduler_type constant --tokens_per_batch 200 --logging_steps 5"
GO_ON += " --save_steps 25 --save_total_limit 1"
# a new one is trained quickly
NEW = "--learning_rate 1.2e-3 --adam_beta2 0.98 --label_smoothing_factor 0.1 --optim adamw_torch_fused"
AMOUNT = f"{NEW} --tokens_per_batch 2400 --warmup_steps 150 --save_steps 100 --save_total_limit 2"
STAGES = f"{NEW} --tokens_per_batch 2000 --warmup_steps 200 --lr_scheduler_type linear"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = parser.add_subparsers(dest="study", required=True, metavar="STUDY")
    for name, (run, prefixes, steps) in STUDIES.items():
        study = studies.add_parser(name, help=run.__doc__, allow_abbrev=False)
        study.set_defaults(run=run)
        study.add_argument("--output_dir", type=Path, required=True, help="Folder of trainings, figure and numbers.")
        study.add_argument("--held", nargs="+", required=True, help="Pairs that are studied: two text files, or four.")
        study.add_argument("--pairs", type=int, default=300, help="Most pairs of a study.")
        study.add_argument("--lengths", type=int, nargs=2, default=(None, None), help="Source and target tokens.")
        study.add_argument("--prefix", nargs="+", choices=PREFIXES, default=prefixes, help="What the decoder reads.")
        if name != "stages":
            study.add_argument("--model", default="demo:en-de", help="The translator in the box, or another.")
        if steps:
            study.add_argument("--train", nargs="+", required=True, help="Two text files or one JSONL file.")
            study.add_argument("--test", nargs="+", required=True, help="As --train; scored after a training.")
            study.add_argument("--steps", type=int, default=steps, help="Updates of a training.")
    objectives, amount, stages = (studies.choices[name] for name in ("objectives", "amount", "stages"))
    objectives.add_argument("--dropout", type=float, default=0.1, help="Share of replaced target words.")
    objectives.add_argument("--candidates", type=int, default=50, help="Of minimum risk training.")
    objectives.add_argument("--alpha", type=float, default=0.005, help="Its sharpness.")
    amount.add_argument("--sizes", type=int, nargs="+", default=[10_000, 40_000], help="Training pairs.")
    stages.add_argument("--vocab_size", type=int, default=6000, help="SentencePiece pieces, both languages.")
    stages.add_argument("--every", type=int, default=25, help="Steps between two checkpoints.")
    return parser


def study_box(args: argparse.Namespace) -> None:
    """One translator, several kinds of prefixes (section 4)."""
    report(args, {"box": args.model})


def ways(args: argparse.Namespace) -> dict[str, tuple[str, list]]:
    """Script and arguments of each way to train a translator on."""
    risk = ["--candidates", args.candidates, "--alpha", args.alpha, "--test_before", "false"]
    own: dict[str, list] = {"mle": [], "dropout": ["--target_word_dropout", args.dropout], "mrt": risk}
    return {
        name: ("train_mrt" if name == "mrt" else "train_translation", ["--model", args.model, *GO_ON.split(), *words])
        for name, words in own.items()
    }


def study_objectives(args: argparse.Namespace) -> None:
    """Ways to train a translator on (section 5)."""
    score(args)
    for name, (script, words) in ways(args).items():
        train(args, name, words, script)
    report(args, {"box": args.model} | {name: str(args.output_dir / name) for name in ways(args)})


def study_amount(args: argparse.Namespace) -> None:
    """Amounts of training data (section 6)."""
    from hf_nmt_interp.training.arguments import open_split

    pairs = list(islice(open_split(parse(words_for(args, "amount"))[1], "train"), max(args.sizes)))
    if len(pairs) < max(args.sizes):
        raise InputError(f"--sizes: {max(args.sizes)}, but --train has {len(pairs)} pairs")
    score(args)
    for size in args.sizes:
        paths = [args.output_dir / f"first-{size}.{side}" for side in ("source", "target")]
        for path, lines in zip(paths, zip(*pairs[:size], strict=True), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        train(args, str(size), [*AMOUNT.split(), "--tokenizer", args.model, "--train", *paths])
    report(args, {str(size): str(args.output_dir / str(size)) for size in args.sizes} | {"box": args.model})


def study_stages(args: argparse.Namespace) -> None:
    """Checkpoints of one training (section 7)."""
    from hf_nmt_interp.training.checkpoints import list_checkpoints

    train(args, "stages", [*STAGES.split(), "--vocab_size", args.vocab_size, "--save_steps", args.every])
    report(args, {path.name: str(path) for path in list_checkpoints(args.output_dir / "stages")})


STUDIES: dict[str, tuple[Any, list[str], int]] = {  # what it does, kinds of prefixes, steps of a training
    "box": (study_box, ["reference", "model", "random"], 0),
    "objectives": (study_objectives, ["random", "model"], 125),
    "amount": (study_amount, ["reference"], 400),
    "stages": (study_stages, ["reference", "random"], 800),
}


def words_for(args: argparse.Namespace, name: str, words: Iterable[Any] = ()) -> list[str]:
    """Command line of a training; later words win."""
    own = ["--output_dir", args.output_dir / name, "--max_steps", args.steps]
    return list(map(str, ["--train", *args.train, "--test", *args.test, *QUIET, *words, *args.more, *own]))


def parse(words: list[str], script: str = "train_translation") -> tuple[Any, ...]:
    """Arguments of a training: of the model, of the data, of the trainer."""
    return read_arguments(import_module(script).make_parser(), words)


def results_of(folder: Path) -> Row:
    """What a training or `score` wrote when it ended."""
    path = folder / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def train(args: argparse.Namespace, name: str, words: Iterable[Any], script: str = "train_translation") -> None:
    """A training by its own script, unless it has ended before."""
    from hf_nmt_interp.training.job import command

    before, sys.argv = sys.argv, [str(Path(__file__).with_name(f"{script}.py")), *words_for(args, name, words)]
    try:
        found = results_of(args.output_dir / name)
        if found.get("train_steps", 0) < args.steps:
            import_module(script).main()
        elif options_of(found["command"]) != options_of(command()):
            raise InputError(
                f"--output_dir: {args.output_dir / name} was trained by {found['command']!r}; name another"
            )
    finally:
        sys.argv = before


def options_of(line: str) -> str:
    """A command line without the program, wherever that was."""
    return line.partition(" --")[2]


def score(args: argparse.Namespace) -> None:
    """Test the translator as it comes."""
    from hf_nmt_interp.training.job import Run
    from hf_nmt_interp.training.new_models import load_checkpoint
    from hf_nmt_interp.training.translation import TranslationTrainer

    asked = {"model": args.model, "test": list(map(str, args.test))}
    if {name: results_of(args.output_dir / "box").get(name) for name in asked} != asked:
        model_args, data, config = parse(words_for(args, "box", ["--train", *args.test]))
        model, tokenizer = load_checkpoint(args.model, data)
        run = Run(TranslationTrainer, model, tokenizer, data, config, model_args.max_length, args.model)
        (args.output_dir / "box").mkdir(parents=True, exist_ok=True)
        run.write(asked | run.test())


def report(args: argparse.Namespace, names: dict[str, str]) -> None:
    """Study the models, by their labels; write figure, numbers and table, and print the table."""
    from hf_nmt_interp.cli.output import track_items
    from hf_nmt_interp.cli.verbs.contributions import study_models
    from hf_nmt_interp.report.contributions import contribution_markdown, plot_contributions, plot_training, table_rows
    from hf_nmt_interp.studies.contribution_study import contribution_study
    from hf_nmt_interp.training.job import command

    *_, last = names
    study = contribution_study(
        *study_models(names, "auto"),
        *zip(*args.held, strict=True),
        prefixes=args.prefix,
        lengths=[tuple(args.lengths)],
        limit=args.pairs,
        final=last if args.study == "stages" else None,
        track=track_items,
    )
    path = args.output_dir / f"{args.study}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    plot_contributions(study, path)
    results = {name: results_of(args.output_dir / name) for name in names}
    if results.get("box", {}).get("model") != names.get("box"):
        results["box"] = {}  # of another study, with another model
    if args.study == "stages":
        plot_training(study, path.with_name("stages-training.svg"))
        results[last] = results_of(args.output_dir / "stages")
    table = table_rows(study.means(), results)
    numbers = {"command": command(), "sentences": max(row["sentences"] for row in study.rows), "table": table}
    path.with_suffix(".json").write_text(json.dumps(numbers, indent=2), encoding="utf-8")
    print(contribution_markdown(table), end="")


def check(args: argparse.Namespace) -> None:
    """Read the held-out pairs, and refuse what would only fail after the trainings."""
    from hf_nmt_interp.text.corpus import read_pairs

    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or is_lone():
        raise InputError("launcher: several processes; train by them with train_*.py, and compare by hf-nmt-interp")
    numbers = {name: getattr(args, name, 1) for name in ("pairs", "steps", "every", "sizes")}
    for name, number in numbers.items():
        if min(number if isinstance(number, list) else [number]) < 1:
            raise InputError(f"--{name}: {number} must be at least 1")
    if args.study == "box" and args.more:
        raise InputError(f"{args.more[0]}: no training is made here that it could be for")
    if args.study != "box":
        for script, words in ways(args).values() if args.study == "objectives" else [("train_translation", [])]:
            parse(words_for(args, args.study, words), script)
    files = args.held
    if len(files) % 2:
        raise InputError(f"--held: {len(files)} files; give two parallel text files, or four")
    args.held = [pair for both in zip(files[::2], files[1::2], strict=True) for pair in read_pairs(*both)]
    if not args.held:
        raise InputError(f"--held: there is no sentence pair in {' and '.join(files)}")


def main() -> None:
    args, more = make_parser().parse_known_args()
    args.more = more
    check(args)
    args.run(args)


if __name__ == "__main__":
    run_script(main)
