"""Entry point of the training scripts: arguments, one-line user errors, several processes, one training run."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError, printable
from hf_nmt_interp.text.files import write_problem
from hf_nmt_interp.text.locks import Terminated, locked, stoppable


def run_script(main: Callable[[], None]) -> None:
    """Call a script's `main`; user errors, a full disk (exit code 2), Ctrl-C and SIGTERM print one line on stderr."""
    code = 2
    try:
        with stoppable():
            return main()
    except InputError as error:
        text = str(error)
    except KeyboardInterrupt as error:
        code = 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
        text = f"interrupted; {error if error.args else 'run the same command again to resume'}"
    except Exception as error:
        if write_problem(error) is None:
            raise
        text = f"cannot write: {error}; free space and run the same command again to resume from the last checkpoint"
    print(f"{Path(sys.argv[0]).name}: {printable(text)}", file=sys.stderr)
    sys.exit(code)


def read_arguments(parser: Any, words: Sequence[str] | None = None) -> tuple[Any, ...]:
    """An object for each dataclass of a script's parser; raises `InputError` for a bad command line."""
    try:
        *found, unknown = parser.parse_args_into_dataclasses(words, return_remaining_strings=True)
    except InputError:
        raise
    except ValueError as error:  # of transformers' own arguments
        raise InputError("arguments", None, str(error)) from error
    if unknown:
        name = unknown[0].partition("=")[0]  # without the value, which may be a token
        raise InputError(name, None, "is not a known argument", "see --help; abbreviations are not supported")
    return tuple(found)


def training_parser(own: Any, config: str) -> Any:
    """The parser of a script, for its own arguments, the data and the trainer's config, e.g. "mrt.MRTConfig"."""
    from transformers import HfArgumentParser

    from hf_nmt_interp.training.arguments import DataArguments

    module, _, name = config.partition(".")  # a heavy import
    kinds: Any = (own, DataArguments, getattr(import_module(f"hf_nmt_interp.training.{module}"), name))
    return HfArgumentParser(kinds, allow_abbrev=False)


def run_training(
    make_parser: Callable[[], Any],  # returns a `training_parser` whose first dataclass is a `StartArguments`
    # from arguments of the script, the data and the trainer to the trainer's class, the model and its tokenizer
    build: Callable[[Any, Any, Any], tuple[Any, Any, Any]],
    finish: Callable[[Any, Any], None] | None = None,  # trains and writes with a `Job`; None is `Job.complete`
) -> None:
    """Read the command line, build the model, train and test it, and write the results."""
    start_missing_processes()
    arguments, data, config = read_arguments(make_parser())

    from transformers import set_seed

    from hf_nmt_interp.training.arguments import check_data
    from hf_nmt_interp.training.job import Job
    from hf_nmt_interp.training.provenance import check_run, describe_run, keep_run

    set_seed(config.seed)
    check_data(data, config)
    with only_run(config.output_dir):
        check_run(about := describe_run(arguments, data, config), config, arguments.overwrite_output_dir)
        job = Job(*build(arguments, data, config), data, config, arguments.max_length, arguments.base)
        keep_run(about, config)
        if finish is None:
            job.complete(arguments.export)
        else:
            finish(job, arguments)


def only_run(folder: str | Path) -> AbstractContextManager[None]:
    """Context that locks an `--output_dir` against other runs."""
    first = os.environ.get("RANK", "0") == "0"
    return locked(folder, "--output_dir") if first else nullcontext()


def without_gpu_but_distributed() -> bool:
    """Whether a launcher started several processes on a machine that can only use `gloo` on the CPU."""
    import torch

    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.accelerator.is_available()


def start_missing_processes(module: str | None = None) -> None:
    """Make `accelerate launch --num_processes N script` run N processes on machines without a GPU.

    On such machines, accelerate silently starts only one (without `--multi_gpu` or MPI). Call this first in a script
    (or in the `module` named by `-m`): it replaces that process by its share of N processes of `torchrun`; on other
    machines it does nothing.
    """
    if not is_lone():
        return
    import torch

    processes, machines, machine = _asked_for()
    if processes < 2 or torch.accelerator.is_available():
        return
    here = processes // machines
    print(f"accelerate started one process on this machine without a GPU; starting {here}", file=sys.stderr)
    nodes = ["--standalone"]
    if machines > 1:  # accelerate's own arguments, which it leaves in the environment
        nodes = [f"--nnodes={machines}", f"--node_rank={machine}"]
        nodes += [f"--master_addr={os.environ['MASTER_ADDR']}", f"--master_port={os.environ['MASTER_PORT']}"]
    launcher = ["torch.distributed.run", *nodes, "--nproc_per_node", str(here)]
    program = sys.argv if module is None else ["--module", module, *sys.argv[1:]]
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", *launcher, *program])


def is_lone() -> bool:
    """Whether `accelerate launch` started this process, as one of several, but without a rank."""
    # accelerate sets the first two for more than one process, every real launcher the third
    return "MASTER_PORT" in os.environ and "ACCELERATE_MIXED_PRECISION" in os.environ and "RANK" not in os.environ


def _asked_for() -> tuple[int, int, int]:
    """Processes, machines and this machine's rank, from the command line or configuration of `accelerate launch`."""
    import psutil
    from accelerate.commands.config.config_args import default_config_file, load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    parent = psutil.Process().parent()
    command = parent.cmdline() if parent else []
    launch = [i for i, part in enumerate(command) if part.endswith(("launch", "launch.py"))]  # also accelerate-launch
    if not launch:
        return 1, 1, 0
    arguments, _ = launch_command_parser().parse_known_args(command[launch[0] + 1 :])
    saved = None
    if arguments.config_file or (os.path.isfile(default_config_file) and not arguments.cpu):  # as accelerate does
        saved = load_config_from_file(arguments.config_file)
    found = []
    for name, default in (("num_processes", 1), ("num_machines", 1), ("machine_rank", 0)):
        given = getattr(arguments, name)
        found.append(getattr(saved, name, default) if given is None else given)
    return found[0], found[1], found[2]
