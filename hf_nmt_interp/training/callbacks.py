"""Callbacks for any trainer."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.attention_learning import SNAPSHOTS
from hf_nmt_interp.studies.contribution_study import ContributionStudy, contribution_study
from hf_nmt_interp.studies.snapshots import SNAPSHOT_SCORES, take_snapshot
from hf_nmt_interp.text.files import write_whole

CONTRIBUTIONS = "contributions.csv"


class Stopwatch(TrainerCallback, ExportableState):
    """Training time in seconds (wall-clock and CPU), accumulated over restarts; checkpoints store it.

    >>> Stopwatch(seconds=60).state()["args"]
    {'seconds': 60, 'cpu_seconds': 0.0}
    """

    def __init__(self, seconds: float = 0.0, cpu_seconds: float = 0.0) -> None:
        self.seconds, self.cpu_seconds = seconds, cpu_seconds
        self._since = time.monotonic(), time.process_time()

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        # the trainer would restore a new object, and only with restore_callback_states_from_checkpoint
        kept = state.stateful_callbacks.get(type(self).__name__, self.state())
        self.seconds, self.cpu_seconds = (kept["args"].get(name, 0.0) for name in ("seconds", "cpu_seconds"))
        self._since = time.monotonic(), time.process_time()

    def on_step_end(self, args, state, control, **kwargs) -> None:
        now = time.monotonic(), time.process_time()
        self.seconds += now[0] - self._since[0]
        self.cpu_seconds += now[1] - self._since[1]
        self._since = now

    def state(self) -> dict:
        return {"args": {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}, "attributes": {}}


class ContributionCallback(TrainerCallback):
    """Measures contributions on a fixed evaluation set at chosen steps of any training (voita2021, section 7).

    Means over target positions are logged, e.g. as `contributions/random/source_contribution`, and curves are written
    to `contributions.csv` in the output folder, which `ContributionStudy.load` reads. The model and the random state
    of the training are not changed. One process measures while the others wait at their next step.

    Args:
        tokenizer: tokenizer of the model.
        sources: sentences to choose the evaluation set from.
        targets: their translations.
        steps: an interval, or a list of steps; 0 is before the first.
        limit: maximum number of sentences; the cost of a measurement grows with it.
        log: function that receives the figures, e.g. `trainer.log`; None adds them to the trainer's log history.
        study: further arguments of `contribution_study`: prefixes (reference and random by default), lengths, method.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> callback = hni.ContributionCallback(tokenizer, ["I like tea."], ["Ich mag Tee."], steps=[0, 100, 1000])
    >>> callback.steps  # give it to a trainer: callbacks=[callback]
    [0, 100, 1000]
    """

    uses_parts = True  # of the model, see `TranslationTrainer`

    def __init__(
        self,
        tokenizer: Any,
        sources: Sequence[str],
        targets: Sequence[str],
        steps: int | Collection[int] = 500,
        *,
        limit: int = 16,
        log: Callable[[dict[str, float]], None] | None = None,
        **study: Any,
    ) -> None:
        if isinstance(steps, int) and steps < 1:
            raise InputError("steps", steps, "must be at least 1, or a list of steps")
        self.steps, self.log = steps, log
        self._data = tokenizer, list(sources), list(targets)
        self._options: dict[str, Any] = {"prefixes": ("reference", "random"), "limit": limit} | study
        self._rows: list[dict[str, Any]] = []

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        path = Path(args.output_dir) / CONTRIBUTIONS
        rows = ContributionStudy.load(path).rows if state.global_step and path.exists() else []
        self._rows = [row for row in rows if int(row["model"].rpartition("-")[2]) <= state.global_step]
        self.on_step_end(args, state, control, **kwargs)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        step = state.global_step
        due = step % self.steps == 0 if isinstance(self.steps, int) else step in self.steps
        name = f"checkpoint-{step}"
        if not due or not state.is_world_process_zero or any(row["model"] == name for row in self._rows):
            return
        model = getattr(kwargs["model"], "module", kwargs["model"])  # without a launcher's wrapper
        study = contribution_study({name: model}, *self._data, **self._options)
        self._rows += study.rows
        write_whole(Path(args.output_dir) / CONTRIBUTIONS, ContributionStudy(self._rows).to_csv())
        figures = {f"contributions/{r['prefix']}/{r['statistic']}": round(r["mean"], 6) for r in study.means()}
        if self.log:
            due = control.should_log
            self.log(figures)
            control.should_log = due  # the entry counts as the log of this step
        else:
            state.log_history.append(figures | {"step": step})


@dataclass(eq=False)
class SnapshotCallback(TrainerCallback):
    """Takes snapshots of the model at chosen steps of its training, and saves them in the output folder.

    Snapshots that a resumed run has already taken are not taken again.
    """

    batches: Callable[[str], Iterable[dict[str, Any]]]  # from the name of a set to its batches
    steps: Sequence[int]  # 0 is before the first
    scores: Sequence[str] = SNAPSHOT_SCORES[:2]  # scores to record
    last_scores: Sequence[str] = ()  # additional scores at the last step
    on: Sequence[str] = ("valid",)  # sets to evaluate, each with its folder
    bleu: Callable[[Any, str], float] | None = None  # from model and set to the BLEU of translations, from 0 to 1
    log: Callable[[str], None] = print  # receives a line of text

    def on_step_end(self, args, state, control, **kwargs) -> None:
        step = state.global_step
        if step not in self.steps or not state.is_world_process_zero:
            return
        model = getattr(kwargs["model"], "module", kwargs["model"])  # without a launcher's wrapper
        for name in self.on:
            path = Path(args.output_dir) / SNAPSHOTS[name] / f"{step}.safetensors"
            if not path.exists():
                self.log(f"{Path(args.output_dir).name}, step {step}: {self._take(model, name, step, path)}")

    def _take(self, model: Any, name: str, step: int, path: Path) -> str:
        """Take a snapshot on one set; returns a short summary."""
        scores = [*self.scores, *(self.last_scores if step == max(self.steps) else ())]
        found = take_snapshot(model, self.batches(name), scores)
        text = f"{100 * found.performance:.1f} % right"
        if self.bleu is not None:
            bleu = self.bleu(model, name)
            found = replace(found, bleu=bleu)
            text += f", BLEU {100 * bleu:.1f}"
        found.save(path)
        return text if len(self.on) == 1 else f"{text} ({name})"

    on_train_begin = on_step_end
