"""All training scripts on the smallest models, for what has to hold for each of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainer_scripts import train_alignment, train_calibrated, train_l0, train_mrt, train_seq2seq, train_translation

QUIET = {"disable_tqdm": True, "report_to": "none", "logging_steps": 5, "test_beams": 1, "max_length": 30}
STEPS = 4  # of one epoch: its odd last batch is left out by two processes, and a step of its own for one
TRAINING = {"max_steps": STEPS, "save_steps": STEPS, "logging_steps": 1, "tokens_per_batch": 60}
PLAIN = {"optim": "sgd", "learning_rate": 0.1}  # Adam would scale up rounding where a gradient is 0
NEW = {"vocab_size": 68}  # pieces of a vocabulary made of the training text
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "translation": (train_translation, NEW | {"d_model": 8, "layers": 1, "heads": 2, "ffn_dim": 16}),
    "seq2seq": (train_seq2seq, NEW | {"set": ["embedding_size=12", "hidden_size=12"]}),
    "l0": (train_l0, {"gated_attentions": "encoder", "gate_learning_rate": 0.1}),
    "mrt": (train_mrt, {"candidates": 3, "risk": "chrf"}),
    "calibrated": (train_calibrated, {"fusion": "gate"}),
    "alignment": (train_alignment, {"teacher": "attention:layer=0"}),
}


def options_of(name: str, model: Any, **more: Any) -> dict[str, Any]:
    """Arguments of a script; those that train a translator further get `model`."""
    given = RUNS[name][1]
    return QUIET | ({} if "vocab_size" in given else {"model": model}) | given | more


def command_line(name: str, options: dict[str, Any]) -> list[str]:
    """A script's path and its arguments."""
    words = [RUNS[name][0].__file__]
    for option, value in options.items():
        words += [f"--{option}", *map(str, value if isinstance(value, list) else [value])]
    return words


def call(monkeypatch: Any, script: Any, **options: Any) -> None:
    """Run a script in this process, quietly."""
    words = []
    for name, value in (QUIET | options).items():
        words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    monkeypatch.setattr(sys, "argv", [script.__file__, *words])
    script.main()


def launch(*words: Any, timeout: float = 300) -> str:
    """Run `accelerate launch`; return what it printed."""
    command = [str(Path(sys.executable).with_name("accelerate")), "launch", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def losses(folder: Path) -> dict[int, float]:
    """Of each step, from the last checkpoint."""
    state = json.loads((folder / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
    return {row["step"]: row["loss"] for row in state["log_history"] if "loss" in row}
