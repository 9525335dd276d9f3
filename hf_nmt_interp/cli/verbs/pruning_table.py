"""Compare pruning runs: how many heads each has left, its BLEU, and the roles of the heads that survive.

Runs are output folders of trainer_scripts/train_l0.py. Roles come from reports of the verb heads: of the translator
before pruning (--before), and of what each run left of it, if it is RUN/heads.json. The table on a terminal counts
heads (e/d/d-e: of encoder, decoder and cross-attention) and leaves roles to --figure and the other formats.

Examples:
  hf-nmt-interp pruning-table runs/l0 --figure pruning.png
  hf-nmt-interp pruning-table runs/l0 --before heads.json --format tsv
  hf-nmt-interp pruning-table runs/l0 --gates gates.svg
"""

import argparse
from pathlib import Path

from hf_nmt_interp.cli.arguments import add_figure, add_output, chosen_format
from hf_nmt_interp.cli.output import write_rows
from hf_nmt_interp.cli.paths import InputFile
from hf_nmt_interp.errors import InputError

SHORT = {"heads e/d/d-e": "e/d/d-e", "encoder layers": "layers"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="output folder of train_l0.py")
    parser.add_argument("--before", type=InputFile, metavar="FILE", help="heads.json of the translator before pruning")
    add_output(parser)
    add_figure(parser, "BLEU and roles")
    add_figure(parser, "how the gates of a single RUN closed", "--gates")


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.report.heads import plot_gate_history
    from hf_nmt_interp.report.pruning import plot_pruning, read_runs

    if args.gates and len(args.runs) > 1:
        raise InputError("--gates", None, "draws the history of one run", f"{len(args.runs)} were given")
    models = read_runs(args.runs, args.before)
    rows = [model.row() for model in models]
    if chosen_format(args) == "table":  # without roles, in 80 columns
        rows = [{SHORT.get(name, name): x for name, x in list(row.items())[:-1]} for row in rows]
    write_rows(rows, args, "Pruned heads")
    if args.figure:
        plot_pruning(models, args.figure)
    if args.gates:
        plot_gate_history(Path(args.runs[0], "gates.csv"), args.gates)
