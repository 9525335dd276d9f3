"""Checkpoints: find complete ones, and average the last few."""

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers import PreTrainedModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.text.fingerprints import file_fingerprint

ARGUMENTS, STATE = "training_args.json", "trainer_state.json"  # files of a checkpoint
CHECKSUMS = "checksums.json"
HISTORY = "gates.csv"  # of training with gates
LINKS = "links.txt"  # token links of training examples, by the teacher of an alignment head
UNFINISHED = "unfinished"  # folder of a run in which a checkpoint is written


def list_checkpoints(folder: str | Path, *, complete: bool = True, resumable: bool = False) -> list[Path]:
    """`checkpoint-<step>` folders of a training run, oldest first.

    Complete ones have weights and `trainer_state.json`, and no truncated file; checkpoints of this package are written
    to `unfinished` and renamed when they are complete. Resumable ones also have what resuming needs, such as
    `optimizer.pt`, unless the run saves models only.
    """
    pattern = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")
    steps = {path: match for path in Path(folder).glob("*/") if (match := pattern.fullmatch(path.name))}
    found = sorted(steps, key=lambda path: int(steps[path][1]))
    return [path for path in found if _is_complete(path, resumable)] if complete else found


def write_checksums(checkpoint: Path) -> None:
    """Record the checksum of every file of a checkpoint."""
    found = {path.relative_to(checkpoint).as_posix(): path for path in checkpoint.rglob("*") if path.is_file()}
    sums = {name: file_fingerprint(path) for name, path in sorted(found.items())}
    write_whole(checkpoint / CHECKSUMS, json.dumps(sums, indent=1) + "\n")


def check_checksums(checkpoint: str | Path) -> None:
    """Raise if files of a checkpoint were changed; checkpoints written by other packages have no checksums."""
    place = Path(checkpoint)
    if not (place / CHECKSUMS).exists():
        _check_state(place / STATE)
        return
    remedy = "delete this checkpoint and run the same command again to resume from the one before"
    try:
        sums = dict(json.loads((place / CHECKSUMS).read_bytes()))
    except (ValueError, TypeError) as error:
        raise InputError(str(place / CHECKSUMS), None, f"is damaged ({error})", remedy) from error
    for name, checksum in sums.items():
        if not (place / name).is_file() or file_fingerprint(place / name) != checksum:
            raise InputError(str(place / name), None, "was changed after it was written", remedy)


def _check_state(file: Path) -> None:
    """Raise if fields of `trainer_state.json` have the wrong type."""
    state = json.loads(file.read_bytes()) if file.exists() else {}
    kinds = {"global_step": int, "max_steps": int, "log_history": list}
    for name, kind in kinds.items():
        value = state.get(name, kind()) if isinstance(state, dict) else None
        if not isinstance(value, kind):
            raise InputError(
                str(file), None, f"{name} {value!r} is not of the type {kind.__name__}", "delete this checkpoint"
            )


def _is_complete(checkpoint: Path, resumable: bool) -> bool:
    arguments = checkpoint / ARGUMENTS
    try:
        json.loads((checkpoint / STATE).read_bytes())
        only_model = arguments.exists() and json.loads(arguments.read_bytes())["save_only_model"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return False
    weights = list(checkpoint.glob("*.safetensors"))
    states = [*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")]  # zip archives, whose directory is at the end
    needed = ["optimizer*", "scheduler.pt", "rng_state*.pth"] if resumable and not only_model else []
    is_there = bool(weights) and all(any(checkpoint.glob(pattern)) for pattern in needed)
    return is_there and all(map(_is_whole, weights)) and all(map(zipfile.is_zipfile, states))


def _is_whole(weights: Path) -> bool:
    try:
        with safe_open(weights, "pt"):
            return True
    except (OSError, SafetensorError):
        return False


def average_checkpoints(model: PreTrainedModel, folders: Sequence[str | Path]) -> None:
    """Set the weights of `model` to the mean of its checkpoints' weights in safetensors (Vaswani et al. 2017)."""
    if not folders:
        raise InputError("folders", None, "no checkpoint to average", "train with save_steps")
    own = model.state_dict()
    total: dict[str, torch.Tensor] = {}
    for folder in folders:
        check_checksums(folder)
        files = sorted(Path(folder).glob("*.safetensors"))  # more than one if the checkpoint is sharded
        if not files:
            raise InputError("folders", str(folder), "has no *.safetensors file", "give folders of save_pretrained")
        weights = {name: weight for file in files for name, weight in load_file(file).items()}
        _check_same_weights(weights, total or own, folder, exact=bool(total))
        for name, weight in weights.items():
            if weight.is_floating_point():
                total[name] = total.get(name, 0) + weight.double() / len(folders)
            else:
                total[name] = weight  # a counter, such as the annealing step: taken from the last checkpoint
    # tied weights are saved once, so those that are missing from the file follow the others
    model.load_state_dict({name: weight.to(own[name].dtype) for name, weight in total.items()}, strict=False)
    model.tie_weights()


def _check_same_weights(weights: dict, others: dict, folder: str | Path, *, exact: bool) -> None:
    names = set(weights) ^ set(others) if exact else set(weights) - set(others)
    shapes = {name for name in set(weights) & set(others) if weights[name].shape != others[name].shape}
    if different := sorted(names | shapes):
        problem = f"has other weights than the model or the checkpoints before it: {', '.join(different[:3])}"
        raise InputError("folders", str(folder), problem, "give checkpoints of the same run")
