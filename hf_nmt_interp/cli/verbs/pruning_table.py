"""Compare pruning runs: how many heads each has left, its BLEU, and the roles of the remaining heads.

Runs are output folders of trainer_scripts/train_l0.py. Roles come from reports of `heads`: of the translator before
pruning (--before), and of each pruned model (RUN/heads.json, if it exists); without them --figure draws only BLEU. The
table on a terminal counts heads (e/d/d-e: encoder, decoder and cross-attention); the other formats also have the
layers of each kind, roles, and the share of decided gates, which end at 0 or at 1 with a probability of at least 95 %.
--scratch adds BLEU of models that were trained from scratch with the same heads (train_translation.py --heads).

Examples:
  hf-nmt-interp pruning-table runs/l0 --figure pruning.png
  hf-nmt-interp pruning-table runs/l0 --before heads.json --format tsv
  hf-nmt-interp pruning-table runs/l0 --gates gates.svg --layers-figure layers.svg
"""

import argparse
from pathlib import Path

from hf_nmt_interp.cli.arguments import add_figure, add_output, chosen_format, labelled
from hf_nmt_interp.cli.output import write_rows
from hf_nmt_interp.cli.paths import InputFile
from hf_nmt_interp.errors import InputError

# columns of a terminal's table, and their headings there
SHORT = {"run": "run", "lambda": "lambda", "heads e/d/d-e": "e/d/d-e", "encoder layers": "layers"}
SHORT |= {"parameters": "parameters", "BLEU": "BLEU", "BLEU from scratch": "scratch"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="output folder of train_l0.py")
    parser.add_argument("--before", type=InputFile, metavar="FILE", help="heads.json of the translator before pruning")
    add_output(parser)
    add_figure(parser, "BLEU and roles")
    add_figure(parser, "the remaining heads of each kind and layer", "--layers-figure")
    help = "output folder of a model trained from scratch with the heads of RUN; may be repeated"
    parser.add_argument("--scratch", action="append", default=[], metavar="RUN=FOLDER", help=help)
    add_figure(parser, "how the gates of a single RUN closed", "--gates")


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.report.heads import plot_gate_history
    from hf_nmt_interp.report.pruning import plot_layers, plot_pruning, read_runs

    if args.gates and len(args.runs) > 1:
        raise InputError("--gates", None, "supports only one run", f"{len(args.runs)} were given")
    models = read_runs(args.runs, args.before, labelled(args.scratch, "--scratch"))
    rows = [model.row() for model in models]
    if chosen_format(args) == "table":  # 80 columns
        shown = [name for name in SHORT if name != "BLEU from scratch" or args.scratch]
        rows = [{SHORT[name]: row[name] for name in shown} for row in rows]
    write_rows(rows, args, "Pruned heads")
    if args.figure:
        plot_pruning(models, args.figure)
    if args.layers_figure:
        plot_layers(models, args.layers_figure)
    if args.gates:
        plot_gate_history(Path(args.runs[0], "gates.csv"), args.gates)
