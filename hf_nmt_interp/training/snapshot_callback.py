"""How attention learns: a model looked at again and again while it is trained (snell2021, section 3 and A.8)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.snapshots import SNAPSHOT_SCORES, Snapshot, take_snapshot

SNAPSHOTS = "snapshots"


def evaluation_steps(last: int, early: Sequence[int], every: int) -> list[int]:
    """The early steps, then every so many after the last of them, and the last step.

    >>> evaluation_steps(5000, [0, 50, 100, 500, 1000, 1500], 2000)
    [0, 50, 100, 500, 1000, 1500, 3500, 5000]
    """
    if every < 1 or last < 1:
        raise InputError(f"every, last: {every} and {last} steps must be at least 1")
    later = range(max(early, default=0) + every, last, every)
    return sorted({*(step for step in early if step < last), *later, last})


class SnapshotCallback(TrainerCallback):
    """Takes a snapshot of the model at chosen steps of its training and keeps it in `snapshots/` of the output folder.

    Snapshots that are there already, of a run that goes on, are not taken again.

    Args:
        batches: makes the batches of the fixed set.
        steps: when; 0 is before the first.
        scores: what is looked at.
        last_scores: more of it at the last step of `steps`.
        log: takes a line of text.
    """

    def __init__(
        self,
        batches: Callable[[], Iterable[dict[str, Any]]],
        steps: Sequence[int],
        scores: Sequence[str] = SNAPSHOT_SCORES[:2],
        last_scores: Sequence[str] = (),
        log: Callable[[str], None] = print,
    ) -> None:
        self.batches, self.steps, self.log = batches, list(steps), log
        self.scores, self.last_scores = list(scores), [*scores, *last_scores]

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        self.on_step_end(args, state, control, **kwargs)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        step = state.global_step
        path = Path(args.output_dir) / SNAPSHOTS / f"{step}.safetensors"
        if step not in self.steps or path.exists() or not state.is_world_process_zero:
            return
        model = getattr(kwargs["model"], "module", kwargs["model"])  # without a launcher's wrapper
        found = take_snapshot(model, self.batches(), self.last_scores if step == max(self.steps) else self.scores)
        found.save(path)
        self.log(f"{Path(args.output_dir).name}, step {step}: {100 * found.performance:.1f} % right")


def read_snapshots(folder: str | Path) -> dict[int, Snapshot]:
    """Snapshots of a run by step, in order."""
    files = {int(path.stem): path for path in Path(folder, SNAPSHOTS).glob("*.safetensors")}
    if not files:
        raise InputError(f"folder: {folder} has no {SNAPSHOTS}/*.safetensors; let the training run write them first")
    return {step: Snapshot.load(files[step]) for step in sorted(files)}


@dataclass(frozen=True)
class TrainingRun:
    """One of the study's trainings.

    Attributes:
        attention_mode: of the LSTM model; None for the proxy.
        seed: added to that of the study.
        scores: that its snapshots hold.
        last_scores: more of them at the end.
    """

    attention_mode: str | None
    seed: int
    scores: tuple[str, ...]
    last_scores: tuple[str, ...] = ()


RUNS = {
    "standard": TrainingRun("learned", 0, ("alpha",), ("beta", "delta")),
    "uniform": TrainingRun("uniform", 0, ("beta",)),
    "proxy": TrainingRun(None, 0, ("beta",)),
    "second_seed": TrainingRun("learned", 1, ("alpha",)),
}


def is_complete(folder: str | Path, steps: int) -> bool:
    """Whether a training has got to its last step."""
    return Path(folder, SNAPSHOTS, f"{steps}.safetensors").exists()
