"""Study how attention learns on toy tasks (snell2021, sections 3.3, 5.2, 6.1, 6.2, appendices A.3, A.6).

Examples:
    # copying permutations of 40 words, and of 40 of 60 words (figure 3 left)
    python trainer_scripts/study_toy_attention.py copying --output_dir runs/toy

    # all studies except heads
    python trainer_scripts/study_toy_attention.py copying mixture permuted locality frozen --output_dir runs/toy

    # locality with classifiers that read from left to right only
    python trainer_scripts/study_toy_attention.py locality --output_dir runs/forward --bidirectional false

    # heads: with other settings no bad heads are found
    python trainer_scripts/study_toy_attention.py heads --output_dir runs/heads --steps 140 \
        --candidates 24 --trials 1 --model_seed 7

Studies:
    copying    permutations of the same 40 words against 40 of 60 words
    mixture    permutations of one of two sets of 40 words against 40 of 80 words (figure 3 right)
    permuted   output in one fixed random order against copying (section 6.2)
    heads      8 heads: all bad, one good, or drawn at random (figure 6); initial weights of a head are good if a model
               with only this head learns to copy permutations with all of --trials data seeds, and bad if it fails
               with all of them
    locality   log-odds under uniform attention: of the keyword's state, the next and the last state, and the mean over
               all states (figure 7)
    frozen     attention trained with everything else frozen, and the lexical probe under uniform attention: which
               agrees better with normally trained attention? (table 10)

Each study writes STUDY.png and its numbers as STUDY.csv to --output_dir, and prints a table. All seeds of a condition
are trained in parallel. Run the same command again to resume.

A copier has learned if at least 95 % of the test words are correct at the end (given the words before them), and has
failed if less than 60 % are. A model that only knows which words are left gets 11 % of them right.
"""

import argparse
from dataclasses import MISSING, fields
from typing import Any

from hf_nmt_interp.errors import check_choice
from hf_nmt_interp.studies.toy_attention import STUDIES, ToySettings
from hf_nmt_interp.training.launch import only_run, run_script


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=STUDIES, metavar="STUDY", help=", ".join(STUDIES))
    for one in fields(ToySettings):
        kind = str if one.type is bool else one.type
        given = {"required": True} if one.default is MISSING else {"default": one.default}
        if one.type is bool:
            given = {"default": str(one.default).lower(), "metavar": "true|false"}
        parser.add_argument(f"--{one.name}", type=kind, help=one.metadata["help"], **given)
    return parser


def read_settings(arguments: dict[str, Any]) -> ToySettings:
    """The settings from the command line; switches are given as true or false."""
    for one in fields(ToySettings):
        if one.type is bool:
            check_choice(f"--{one.name}", arguments[one.name], ("true", "false"))
            arguments[one.name] = arguments[one.name] == "true"
    return ToySettings(**arguments)


def main() -> None:
    from rich.console import Console

    from hf_nmt_interp.report.seed_curves import plot_seeds
    from hf_nmt_interp.report.terminal import table

    arguments = vars(make_parser().parse_args())
    studies = arguments.pop("studies")
    settings = read_settings(arguments)
    with only_run(settings.output_dir):
        settings.keep()
        for name in studies:
            rows, summary_rows, label = STUDIES[name](settings)
            plot_seeds(rows, settings.output_dir / f"{name}.png", label)
            Console().print(table(summary_rows))


if __name__ == "__main__":
    run_script(main)
