"""Compare pruning runs: how many heads each has left, its BLEU, and the roles of the heads that survive.

Runs are output folders of trainer_scripts/train_l0.py. Roles are told by reports of the verb heads: of the translator
before pruning (--before), and of what each run left of it, if it is RUN/heads.json.

Examples:
  hf-nmt-interp pruning-table runs/l0 --figure pruning.png
  hf-nmt-interp pruning-table runs/l0 --before heads.json --format tsv
"""

import argparse

from hf_nmt_interp.cli.arguments import add_output
from hf_nmt_interp.cli.output import write_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Runs, report of the translator before, output and figure."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="output folder of train_l0.py")
    parser.add_argument("--before", metavar="FILE", help="heads.json of the translator before pruning")
    add_output(parser)
    parser.add_argument("--figure", metavar="FILE", help="draw BLEU and roles, e.g. to pruning.png, .svg or .pdf")


def run(args: argparse.Namespace) -> None:
    """Read what the runs wrote, and write the table."""
    from hf_nmt_interp.report.pruning import plot_pruning, read_runs

    models = read_runs(args.runs, args.before)
    write_rows([model.row() for model in models], args, "Pruned heads")
    if args.figure:
        plot_pruning(models, args.figure)
