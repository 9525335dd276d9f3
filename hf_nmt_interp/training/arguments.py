"""Arguments shared by the training scripts, and the text that they name."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError, install
from hf_nmt_interp.text.corpus import read_dataset, read_pairs
from hf_nmt_interp.text.tokens import Punctuation, separate_punctuation
from hf_nmt_interp.training.data import Restartable

GIVE_FILES = "does not name the data", "give two text files or one JSONL file"


def option(default: Any, text: str) -> Any:
    """A dataclass field for an argument, with its help; a list default is copied for each object."""
    value: Any = {"default_factory": default.copy} if isinstance(default, list) else {"default": default}
    return field(**value, metadata={"help": text})


def check_fields(arguments: Any, problem: str, is_wrong: Callable[[Any], bool], *names: str) -> None:
    """Raise if one of the named fields has a wrong value."""
    for name in names:
        if is_wrong(value := getattr(arguments, name)):
            raise InputError(name, value, problem)


def check_reporters(names: Sequence[str]) -> None:
    """Raise if a reporting tool that is an extra is not installed."""
    from transformers.integrations import is_tensorboard_available, is_wandb_available

    is_there = {"tensorboard": is_tensorboard_available, "wandb": is_wandb_available}
    for name in names:
        if name in is_there and not is_there[name]():
            raise InputError("report_to", name, "is not installed", install(name))


@dataclass
class StartArguments:
    """The model to train."""

    model: str | None = option(None, "Checkpoint to start from (folder, Hub id or demo:en-de).")
    max_length: int = option(128, "Maximum tokens per side; longer training pairs are dropped, test pairs truncated.")
    overwrite_output_dir: bool = option(False, "Start over: remove the checkpoints and results in --output_dir.")

    @property
    def base(self) -> str | None:
        """Checkpoint whose weights the model has."""
        return self.model


@dataclass
class ExportArguments(StartArguments):
    """The model to train, and the folder for the result."""

    export: str | None = option(None, "Folder for the final model in float16.")


@dataclass
class DataArguments:
    """Parallel text."""

    source_lang: str = option("en", "Source language; its field in JSONL files and datasets.")
    target_lang: str = option("de", "Target language; its field in JSONL files and datasets.")
    source_code: str | None = option(None, "Code of the source language in a multilingual checkpoint, e.g. eng_Latn.")
    target_code: str | None = option(None, "Code of the target language, e.g. deu_Latn.")
    train: list[str] = option([], "Two text files, one JSONL file, or a split.")
    valid: list[str] = option([], "Like train.")
    test: list[str] = option([], "Like train; scored once at the end.")
    dataset: str | None = option(None, "Dataset (Hub id or folder) whose splits are used.")
    dataset_config: str | None = option(None, "Configuration of the dataset.")
    streaming: bool = option(False, "Stream the training data; needs --max_steps.")
    max_valid: int = option(500, "Maximum validation pairs to translate at each evaluation.")
    vocabulary_pairs: int = option(1_000_000, "Maximum training pairs used to build the vocabulary.")
    punctuation: Punctuation = option("attached", "attached, or separate: marks are words (for tokenised text).")
    test_beams: int = option(4, "Beam size of the final test.")
    test_length_penalty: float | None = option(None, "Length penalty of the final test (default: the model's own).")
    source_word_dropout: float = option(0.0, "Share of source tokens replaced in training.")
    target_word_dropout: float = option(0.0, "Share of decoder input tokens replaced in training; labels are kept.")
    word_dropout_item: str = option("random", "What replaces them: random (vocabulary items) or unk.")
    contribution_steps: list[int] = option([], "Steps at which contributions are measured on --valid.")
    license: str | None = option(None, "For the card: license as the Hub spells it, e.g. cc-by-2.0.")
    base_model: str | None = option(None, "For the card: Hub id of --model (default: its name, or from its card).")
    data_names: list[str] = option([], "For the card: Hub ids of the datasets (default: --dataset).")
    card_sentences: int = option(20, "For the card: test (or validation) pairs of the contribution curve; 0 for none.")

    @property
    def codes(self) -> tuple[str, str]:
        """Language codes for a multilingual checkpoint."""
        return self.source_code or self.source_lang, self.target_code or self.target_lang


def check_data(data: DataArguments, config: Any) -> None:
    """Raise if arguments contradict each other, before anything is loaded."""
    if data.streaming and config.max_steps < 1:
        raise InputError("--streaming", None, "a stream has no length", "give --max_steps")
    if config.eval_strategy != "no" and not data.valid:
        raise InputError("--eval_strategy", config.eval_strategy.value, "needs --valid")
    if data.contribution_steps and not data.valid:
        raise InputError("--contribution_steps", data.contribution_steps, "need --valid")
    if not math.isfinite(config.learning_rate):
        raise InputError("--learning_rate", config.learning_rate, "must be finite, e.g. 5e-5")
    place = Path(config.output_dir)
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise InputError("--output_dir", config.output_dir, "cannot be created or written to", "choose another folder")


def open_split(data: DataArguments, split: str) -> Iterable[tuple[str, str]]:
    """Pairs of "train", "valid" or "test"; starts over at each `iter()`."""
    where = getattr(data, split)
    fields: dict[str, Any] = {"source": data.source_lang, "target": data.target_lang}
    if data.dataset is not None:
        if len(where) != 1:
            raise InputError(f"--{split}", where, "does not name one split", "with --dataset, give the name of one")
        fields |= {"config": data.dataset_config, "split": where[0], "streaming": data.streaming and split == "train"}
        read = partial(read_dataset, data.dataset, **fields)
    elif len(where) in (1, 2):
        read = partial(read_pairs, *where, **fields)
    else:
        raise InputError(f"--{split}", where, *GIVE_FILES)
    if data.punctuation == "attached":
        return Restartable(read)
    return Restartable(lambda: (tuple(map(separate_punctuation, pair)) for pair in read()))


def read_split(data: DataArguments, split: str) -> list[tuple[str, str]]:
    """All pairs of "valid" or "test", read at once so that errors are reported before training; [] if not given."""
    if not (where := getattr(data, split)):
        return []
    if not (pairs := list(open_split(data, split))):
        raise InputError(f"--{split}", where, "has no pairs", "leave it out")
    return pairs
