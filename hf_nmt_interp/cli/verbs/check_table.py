"""Measure how well the signals of `check` find bad translations, on human labels or on removed clauses.

LABELS is a CSV file with columns src, mt and labels of 0 or 1: detached (or strong-unsupport, full-unsupport),
omission, repetition (or repetitions). The model force decodes every translation. For each kind of error against all
other lines, the table has the area under the ROC curve and the precision at 90 % recall, with bootstrap intervals, of
every signal and of the cross-validated combination. --save writes the fitted combination, for check --weights.

With --removed, it takes sentences and good translations instead, removes a clause from each translation, and prints
how many of the source words of that clause are flagged.

Examples:
  hf-nmt-interp check-table labels.csv --model demo:de-en --save weights.json
  hf-nmt-interp check-table labels.csv --model demo:de-en --signals all --format json
  hf-nmt-interp check-table --removed clauses.en clauses.de
"""

import argparse
import json
from pathlib import Path

from hf_nmt_interp.cli.arguments import add_decoding, add_model, add_output, chosen_format
from hf_nmt_interp.cli.output import open_output
from hf_nmt_interp.cli.paths import InputFile, OutputFile
from hf_nmt_interp.cli.verbs.check import share
from hf_nmt_interp.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("labels", type=InputFile, metavar="LABELS", nargs="?", help="CSV file of labelled lines")
    group = parser.add_argument_group("study")
    names = ("SOURCE", "TARGET")
    help = "files of sentences and good translations, from which a clause is removed"
    group.add_argument("--removed", nargs=2, type=InputFile, metavar=names, help=help)
    help = "slower signals to add to the default ones: comma-separated names, or all"
    group.add_argument("--signals", metavar="NAMES", help=help)
    group.add_argument("--save", type=OutputFile, metavar="FILE", help="save the fitted weights as JSON")
    help = "accepted share of good lines and words that are reported (default: %(default)s)"
    group.add_argument("--false-alarms", type=share, default=0.05, metavar="SHARE", help=help)
    add_model(parser)
    add_decoding(parser, batch_size=32)
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> None:
    if bool(args.labels) == bool(args.removed):
        raise InputError("LABELS", None, "either LABELS or --removed is required", "give a CSV file or two text files")
    if args.removed and (args.save or args.signals):
        flag = "--save" if args.save else "--signals"
        raise InputError(flag, None, "is supported only with LABELS", "leave it out")
    from hf_nmt_interp.analysis.signals import chosen_signals
    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.studies import check_table, removed_clauses

    names = chosen_signals(["default", *(args.signals.split(",") if args.signals else ())])
    if args.removed:
        from hf_nmt_interp.text.corpus import read_parallel

        pairs = list(read_parallel(*args.removed))
        study = removed_clauses.removed_clauses(*load_for(args), pairs, args.batch_size, args.seed, args.false_alarms)
        text, found = study.markdown(), study.__dict__
    else:
        check_table.read_labels(args.labels)  # a wrong file is reported before the model is loaded
        labelled = check_table.read_labelled(*load_for(args), args.labels, names, args.batch_size)
        table = check_table.check_table(labelled, names)
        about = {"model": Path(args.model).name, "labels": Path(args.labels).name}
        default = [name for name in names if name in chosen_signals()]
        fitted = check_table.fit_combination(labelled, about, default, args.false_alarms)
        text = f"{table.markdown()}\n\n{check_table.limits_table(fitted)}"
        found = {name: getattr(table, name) for name in ("lines", "counts", "rows", "calibration")}
        if args.save:
            fitted.save(args.save)
    with open_output(args.output) as file:
        file.write((json.dumps(found, ensure_ascii=False) if chosen_format(args) == "json" else text) + "\n")
