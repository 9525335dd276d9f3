"""The training runs of a study: each runs a training script in its own folder, and only once."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.job import Job, command
from hf_nmt_interp.training.launch import read_arguments
from hf_nmt_interp.training.new_models import load_checkpoint
from hf_nmt_interp.training.translation import TranslationTrainer

BOX = "box"  # folder for the scores of the translator that training starts from


@dataclass(frozen=True)
class StudyTrainings:
    """Training runs in subfolders of one folder."""

    folder: Path
    first: Sequence[Any]  # arguments of every command line, overridden by those of a training run
    last: Sequence[Any]  # arguments that override those of a training run
    steps: int  # updates per training run

    def words(self, name: str, own: Iterable[Any] = ()) -> list[str]:
        """Command line of a training run; later arguments win."""
        end = ["--output_dir", self.folder / name, "--max_steps", self.steps]
        return list(map(str, [*self.first, *own, *self.last, *end]))

    def parse(self, script: Any, name: str, own: Iterable[Any] = ()) -> tuple[Any, ...]:
        """Parsed arguments of a training run: of the model, the data and the trainer."""
        return read_arguments(script.make_parser(), self.words(name, own))

    def train(self, script: Any, name: str, own: Iterable[Any]) -> None:
        """Run a training script, given its module, folder and arguments, unless the run is complete."""
        before, sys.argv = sys.argv, [script.__file__, *self.words(name, own)]
        try:
            found = results_of(self.folder / name)
            if found.get("train_steps", 0) < self.steps:
                script.main()
            elif _options(found["command"]) != _options(command()):
                problem = f"was trained by {found['command']!r}"
                raise InputError("--output_dir", str(self.folder / name), problem, "choose another folder")
        finally:
            sys.argv = before

    def score(self, script: Any, model: str, test: Sequence[Any]) -> None:
        """Test a translator without training, with the module of `train_translation.py`, unless it has results."""
        asked = {"model": model, "test": list(map(str, test))}
        if {name: results_of(self.folder / BOX).get(name) for name in asked} != asked:
            arguments, data, config = self.parse(script, BOX, ["--train", *test])
            job = Job(TranslationTrainer, *load_checkpoint(model, data), data, config, arguments.max_length, model)
            job.write(asked | job.test())


def results_of(folder: Path) -> dict[str, Any]:
    """The results that a training run or `score` wrote."""
    path = folder / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _options(line: str) -> str:
    """A command line without the path of the program."""
    return line.partition(" --")[2]
