"""Several processes on machines without a GPU, where the launchers leave a gap."""

import os
import sys


def without_gpu_but_distributed() -> bool:
    """Whether a launcher started several processes on a machine that can only use `gloo` on the CPU."""
    import torch

    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.accelerator.is_available()


def start_missing_processes() -> None:
    """Make `accelerate launch --num_processes N script` run N processes on a machine without a GPU.

    There accelerate starts only one (without `--multi_gpu` or MPI) and says nothing. Call this first in a script: it
    replaces the lone process by N of `torchrun`; everywhere else it does nothing.
    """
    alone = "MASTER_PORT" in os.environ and "ACCELERATE_MIXED_PRECISION" in os.environ and "RANK" not in os.environ
    if not alone:  # accelerate sets the first two for more than one process, every real launcher the third
        return
    import torch

    processes = _asked_for()
    if processes < 2 or torch.accelerator.is_available():
        return
    print(f"accelerate started one process on this machine without a GPU; starting {processes}", file=sys.stderr)
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", *launcher, *sys.argv])


def _asked_for() -> int:
    """`--num_processes` of the `accelerate launch` that started this process; 1 if that cannot be told."""
    import psutil
    from accelerate.commands.launch import launch_command_parser

    parent = psutil.Process().parent()
    command = parent.cmdline() if parent else []
    launch = [i for i, part in enumerate(command) if part.endswith(("launch", "launch.py"))]  # also accelerate-launch
    if not launch:
        return 1
    arguments, _ = launch_command_parser().parse_known_args(command[launch[0] + 1 :])
    return arguments.num_processes or 1
