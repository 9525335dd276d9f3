"""`hf-nmt-interp <verb>`: finds the verb, turns errors of the user into one line and exit code 2."""

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from hf_nmt_interp.cli.arguments import chosen_format
from hf_nmt_interp.cli.paths import check_outputs
from hf_nmt_interp.cli.sharded_run import check_processes
from hf_nmt_interp.cli.verbs import VERBS, load_verb
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.version import __version__

_NOT_WRITTEN = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EISDIR,
    errno.EEXIST, errno.ENOTDIR,
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def make_parser() -> Parser:
    """The parser of all verbs; the help of a verb is the docstring of its module."""
    parser = Parser(prog="hf-nmt-interp", description="Neural machine translation that explains itself.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="<verb>")
    for name in VERBS:
        module = load_verb(name)
        text, _, examples = (module.__doc__ or "").strip().partition("\n\nExamples:\n")
        texts: Any = {"help": text.split("\n")[0], "description": text, "epilog": f"examples:\n{examples}"}
        verb = verbs.add_parser(name, **texts, formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(verb)
        verb.add_argument("--traceback", action="store_true", help="show where an error came from (for developers)")
        flags = {action.dest: (*action.option_strings, action.metavar)[0] for action in verb._actions}
        verb.set_defaults(run=module.run, flags=flags)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code is 0, or 2 for an error of the user."""
    args = make_parser().parse_args(argv)
    trains = args.verb == "train"  # its scripts show what libraries log, and several processes share their work
    for library in () if trains else ("TRANSFORMERS", "HF_HUB"):  # read when the library is imported
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads sleep: spinning, they take turns with busy ones
    try:
        if not trains:
            check_processes(args)
        check_outputs(args)
        if getattr(args, "formats", ()):
            chosen_format(args)  # refuses unknown endings before the work
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, e.g. `head`, has enough
        _drop_stdout()
        return 128 + signal.SIGPIPE
    except (InputError, OSError) as error:
        if args.traceback or (isinstance(error, OSError) and error.errno not in _NOT_WRITTEN):
            raise
        print(f"hf-nmt-interp {args.verb}: error: {' '.join(_line(error).split())}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_stdout()
        return 2
    except KeyboardInterrupt:
        print(f"hf-nmt-interp {args.verb}: interrupted{_kept(args)}", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _kept(args: argparse.Namespace) -> str:
    """How to continue an interrupted run, if that is possible."""
    if getattr(args, "shards", None):
        return f"; complete shards are kept in {args.shards}, run the same command again to resume"
    if hasattr(args, "resume") and args.output and args.output.beside():
        return f"; complete parts are kept in {args.output}.shards, run the same command with --resume to continue"
    return ""


def _line(error: InputError | OSError) -> str:
    """An error as a line; sentences count from 1 here."""
    if isinstance(error, OSError):
        return f"{error.filename or 'cannot write'}: {error.strerror}"
    if error.row is None or error.argument not in ("sources", "targets"):
        return str(error)
    side = ", target" * (error.argument == "targets")
    return str(error.at(argument=f"sentence {error.row + 1}{side}", row=None))


def _drop_stdout() -> None:
    """Keep Python from flushing to a closed pipe or a full disk when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
