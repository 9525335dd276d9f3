"""All training scripts, one after the other, in one of two processes; run by `test_two_processes.py` with torchrun."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

from tests.trainer_scripts.every_trainer import RUNS

if __name__ == "__main__":
    Accelerator.end_training = lambda self: None  # the next script needs the same processes
    for name, words in json.loads(Path(sys.argv[1]).read_text()).items():
        sys.argv = words
        RUNS[name][0].main()
    torch.distributed.destroy_process_group()
