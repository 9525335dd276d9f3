"""`hf-nmt-interp <verb>`: finds the verb, and turns user errors into one line and exit code 2."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

from hf_nmt_interp.cli.arguments import chosen_format
from hf_nmt_interp.cli.paths import check_outputs
from hf_nmt_interp.cli.sharded_run import check_processes
from hf_nmt_interp.cli.verbs import VERBS, load_verb
from hf_nmt_interp.errors import InputError, printable
from hf_nmt_interp.text.files import write_problem
from hf_nmt_interp.text.locks import Terminated, stoppable
from hf_nmt_interp.text.progress import progress_bars
from hf_nmt_interp.version import __version__


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def make_parser() -> Parser:
    """The parser of all verbs; the help of a verb is the docstring of its module."""
    about = "Neural machine translation that explains itself."
    parser = Parser(prog="hf-nmt-interp", description=about, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="<verb>")
    for name in VERBS:
        module = load_verb(name)
        text, _, examples = (module.__doc__ or "").strip().partition("\n\nExamples:\n")
        texts: Any = {"help": text.split("\n")[0], "description": text, "epilog": f"examples:\n{examples}"}
        texts |= {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        verb = verbs.add_parser(name, **texts)
        module.add_arguments(verb)
        verb.add_argument("--traceback", action="store_true", help="show where an error came from (for developers)")
        flags = {action.dest: (*action.option_strings, action.metavar)[0] for action in verb._actions}
        verb.set_defaults(run=module.run, flags=flags)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code is 0, or 2 for a user error."""
    args = make_parser().parse_args(argv)
    trains = args.verb == "train"  # its scripts show the logs of libraries and support several processes
    for library in () if trains else ("TRANSFORMERS", "HF_HUB"):  # read when the library is imported
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    if os.environ.get("COLUMNS", "80").strip("0") == "":
        del os.environ["COLUMNS"]  # a table of width 0 would be empty
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads sleep: spinning would slow down others
    try:
        if sys.stdout is None:
            raise InputError("stdout", None, "is closed", "redirect it, e.g. to /dev/null")
        if not trains:
            check_processes(args)
        check_outputs(args)
        if getattr(args, "formats", ()):
            chosen_format(args)  # reports unknown extensions early
        with stoppable(), nullcontext() if trains or os.environ.get("RANK", "0") != "0" else progress_bars():
            args.run(args)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):  # raised by rich
            raise
        _drop_stdout()  # the reader, e.g. `head`, has stopped
        return 128 + signal.SIGPIPE
    except Exception as error:
        line = _line(error) if isinstance(error, InputError) else write_problem(error)
        if args.traceback or line is None:
            raise
        print(f"hf-nmt-interp {args.verb}: error: {printable(line)}", file=sys.stderr)
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:
            _drop_stdout()
        return 2
    except KeyboardInterrupt as stop:
        print(f"hf-nmt-interp {args.verb}: interrupted{_kept(args)}", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)
    return 0


def _kept(args: argparse.Namespace) -> str:
    """How to continue an interrupted run, if that is possible."""
    if getattr(args, "shards", None):
        return f"; complete shards are kept in {args.shards}, run the same command again to resume"
    if getattr(args, "folder", None):
        return f"; complete results are kept in {args.folder}, run the same command again to resume"
    if hasattr(args, "resume") and args.output and args.output.beside():
        return f"; complete parts are kept in {args.output}.shards, run the same command with --resume to continue"
    return ""


def _line(error: InputError) -> str:
    """An error as one line; sentences are counted from 1 here."""
    if error.row is None or error.argument not in ("sources", "targets"):
        return str(error)
    side = ", target" * (error.argument == "targets")
    return str(error.at(argument=f"sentence {error.row + 1}{side}", row=None))


def _drop_stdout() -> None:
    """Keep Python from flushing to a closed pipe or a full disk when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
