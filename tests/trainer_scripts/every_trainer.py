"""All training scripts on the smallest models, for what has to hold for each of them."""

from typing import Any

from tests.trainer_scripts.test_train_l0 import QUIET
from trainer_scripts import train_calibrated, train_l0, train_mrt, train_seq2seq, train_translation

NEW = {"vocab_size": 68}  # pieces of a vocabulary made of the training text
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "translation": (train_translation, NEW | {"d_model": 8, "layers": 1, "heads": 2, "ffn_dim": 16}),
    "seq2seq": (train_seq2seq, NEW | {"set": ["embedding_size=12", "hidden_size=12"]}),
    "l0": (train_l0, {"gated_attentions": "encoder", "gate_learning_rate": 0.1}),
    "mrt": (train_mrt, {"candidates": 3, "risk": "chrf"}),
    "calibrated": (train_calibrated, {"fusion": "gate"}),
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
