"""Callbacks for any trainer."""

import time

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState


class Stopwatch(TrainerCallback, ExportableState):
    """Seconds of training, added up over restarts: the count is kept in the checkpoints.

    >>> Stopwatch(seconds=60).state()["args"]
    {'seconds': 60}
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._since = time.monotonic()

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        # the trainer itself would restore a new object, and only with restore_callback_states_from_checkpoint
        kept = state.stateful_callbacks.get(type(self).__name__, self.state())
        self.seconds = kept["args"]["seconds"]
        self._since = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs) -> None:
        now = time.monotonic()
        self.seconds += now - self._since
        self._since = now

    def state(self) -> dict:
        return {"args": {"seconds": self.seconds}, "attributes": {}}
