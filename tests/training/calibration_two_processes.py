"""What one of two processes finds; run by `test_calibration.py` with torchrun."""

import json
import sys
from pathlib import Path

import torch

from tests.training.test_calibration import SGD, make_trainer

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    trainer = make_trainer(folder / "run", **SGD)
    trainer.train()
    found = {name: p.tolist() for name, p in trainer.model.named_parameters()}
    (folder / f"rank{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()
