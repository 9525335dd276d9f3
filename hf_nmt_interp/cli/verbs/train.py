"""Run a script of trainer_scripts: train a translator, prune its heads, calibrate it, or repeat a study of training.

`hf-nmt-interp train l0 ...` runs `python trainer_scripts/train_l0.py ...` with the same arguments, even if only
the package is installed. For several processes: accelerate launch --num_processes 2 -m hf_nmt_interp train l0 ...

Examples:
  hf-nmt-interp train translation --help
  hf-nmt-interp train l0 --help
"""

import argparse
import runpy
import sys

from hf_nmt_interp.training.scripts import find_scripts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    scripts = find_scripts()
    help = "; ".join(f"{name}: {path.open(encoding='utf-8').readline()[3:-2]}" for name, path in scripts.items())
    parser.add_argument("script", choices=scripts, metavar="SCRIPT", help=help.replace("%", "%%"))
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script, e.g. --help"
    )


def run(args: argparse.Namespace) -> None:
    script = find_scripts()[args.script]
    before = sys.argv, sys.path
    sys.argv, sys.path = [str(script), *args.arguments], [str(script.parent), *sys.path]  # as `python script` has them
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path = before
