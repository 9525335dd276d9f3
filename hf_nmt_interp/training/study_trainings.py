"""The trainings of a study: each by the main function of a training script, in its own folder, and only once."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.job import Job, command
from hf_nmt_interp.training.launch import read_arguments
from hf_nmt_interp.training.new_models import load_checkpoint
from hf_nmt_interp.training.translation import TranslationTrainer

BOX = "box"  # folder of the scores of the translator that trainings start from


class StudyTrainings:
    """Trainings in folders of one folder.

    Args:
        folder: of the study.
        first: words of every command line, which those of a training override.
        last: words that override those of a training.
        steps: updates of a training.
    """

    def __init__(self, folder: Path, first: Sequence[Any], last: Sequence[Any], steps: int) -> None:
        self.folder, self.first, self.last, self.steps = folder, first, last, steps

    def words(self, name: str, own: Iterable[Any] = ()) -> list[str]:
        """Command line of a training; later words win."""
        end = ["--output_dir", self.folder / name, "--max_steps", self.steps]
        return list(map(str, [*self.first, *own, *self.last, *end]))

    def parse(self, script: Any, name: str, own: Iterable[Any] = ()) -> tuple[Any, ...]:
        """Arguments of a training: of the model, of the data, of the trainer."""
        return read_arguments(script.make_parser(), self.words(name, own))

    def train(self, script: Any, name: str, own: Iterable[Any]) -> None:
        """Run a training, unless it has ended before.

        Args:
            script: its module.
            name: of its folder.
            own: words of its command line.
        """
        before, sys.argv = sys.argv, [script.__file__, *self.words(name, own)]
        try:
            found = results_of(self.folder / name)
            if found.get("train_steps", 0) < self.steps:
                script.main()
            elif _options(found["command"]) != _options(command()):
                raise InputError(
                    "--output_dir", str(self.folder / name), f"was trained by {found['command']!r}", "name another"
                )
        finally:
            sys.argv = before

    def score(self, script: Any, model: str, test: Sequence[Any]) -> None:
        """Test a translator as it is, unless it has been tested before.

        Args:
            script: module of `train_translation.py`.
            model: name of the translator.
            test: files of the test set.
        """
        asked = {"model": model, "test": list(map(str, test))}
        if {name: results_of(self.folder / BOX).get(name) for name in asked} != asked:
            arguments, data, config = self.parse(script, BOX, ["--train", *test])
            job = Job(TranslationTrainer, *load_checkpoint(model, data), data, config, arguments.max_length, model)
            job.write(asked | job.test())


def results_of(folder: Path) -> dict[str, Any]:
    """What a training or `score` wrote when it ended."""
    path = folder / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _options(line: str) -> str:
    """A command line without the program, wherever that was."""
    return line.partition(" --")[2]
