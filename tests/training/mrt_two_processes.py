"""What one of two processes finds; run by `test_mrt.py` with torchrun."""

import json
import sys
from pathlib import Path

import pytest
import torch

from hf_nmt_interp.training import candidates as candidates_module
from tests.training import test_mrt

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    draws, sample = [], candidates_module.ancestral_samples

    def recorded(*arguments):
        draws.append(sample(*arguments))
        return draws[-1]

    candidates_module.ancestral_samples = recorded
    trainer = test_mrt.make_trainer(folder / "drawn", learning_rate=0.01)
    trainer.train()
    weights = trainer.model.model.decoder.layers[0].fc1.weight.flatten().tolist()
    with pytest.MonkeyPatch.context() as patch:
        test_mrt.enumerated.__wrapped__(patch)
        exact = test_mrt.make_trainer(folder / "exact", **test_mrt.SGD)
        exact.train()
    found = {
        "first_draws": [s.ids for s in draws[0][0]],
        "weights": weights,
        "enumerated": exact.model.model.decoder.layers[0].fc1.weight.flatten().tolist(),
        "log": {name: exact.state.log_history[0][name] for name in ("loss", "unique_candidates", "reference_share")},
    }
    (folder / f"rank{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()
