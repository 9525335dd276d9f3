"""What one of two processes finds; run by `test_l0.py` with torchrun."""

import json
import sys
from pathlib import Path

import torch

from hf_nmt_interp.models.gated import HardConcreteGate
from hf_nmt_interp.training.l0 import gate_parameters
from tests.training.tiny_trainers import make_l0_trainer

SGD = {"optim": "sgd", "learning_rate": 0.1, "gate_learning_rate": 0.1, "max_grad_norm": 0.0, "penalty": 0.5}


def train(folder: Path, init: float, **settings) -> tuple[list, list]:
    """Draws of the first gate and all gates after training."""
    draws: list = []
    sample = HardConcreteGate.sample
    trainer = make_l0_trainer(folder, **SGD, **settings)
    for gate in gate_parameters(trainer.model):
        gate.data.fill_(init)
    first = trainer.model.gates()["encoder"][0]
    first.sample = lambda: draws.append(sample(first)) or draws[-1]
    trainer.train()
    return torch.stack(draws).tolist(), torch.cat(gate_parameters(trainer.model)).tolist()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    draws, gates = train(folder / "first", init=0.0, max_steps=2)
    again, _ = train(folder / "second", init=0.0, max_steps=2)
    HardConcreteGate.sample = lambda self: torch.sigmoid(self.log_alpha - 2)
    _, certain = train(folder / "certain", init=3.0, max_steps=1)
    found = {"draws": draws, "again": again, "gates": gates, "certain": certain}
    (folder / f"rank{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()
