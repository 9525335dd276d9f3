"""All training scripts, one after the other, in one of two processes; run by `test_two_processes.py` with torchrun."""

import gc
import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel

from tests.trainer_scripts.every_trainer import RUNS


def end_training(accelerator):
    """Leaves the processes for the next script; the group must not have to wait for a wrapped model."""
    assert accelerator.num_processes == 2
    assert not [thing for thing in gc.get_objects() if type(thing) is DistributedDataParallel]


if __name__ == "__main__":
    Accelerator.end_training = end_training
    for name, words in json.loads(Path(sys.argv[1]).read_text()).items():
        sys.argv = words
        RUNS[name][0].main()
    torch.distributed.destroy_process_group()
