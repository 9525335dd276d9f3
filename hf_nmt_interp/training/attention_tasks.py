"""Trainings of the study of how attention learns: translation, and classification as translation into one word."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models import lstm
from hf_nmt_interp.models.proxy import BagOfWordsConfig, BagOfWordsProxy
from hf_nmt_interp.studies.attention_learning import RUNS, TrainingRun, evaluation_steps
from hf_nmt_interp.studies.keywords import PAD, WordIds, planted_texts, read_texts, write_texts
from hf_nmt_interp.text.corpus import Example
from hf_nmt_interp.training.arguments import GIVE_FILES, DataArguments, open_split
from hf_nmt_interp.training.batching import cut_by_tokens, pad_batch, sizes_of
from hf_nmt_interp.training.callbacks import SnapshotCallback
from hf_nmt_interp.training.data import encode_examples
from hf_nmt_interp.training.job import find_checkpoint
from hf_nmt_interp.training.new_models import new_tokenizer, read_settings, special_ids
from hf_nmt_interp.training.translation import TranslationTrainer


class Task(ABC):
    """Data and models of a task."""

    EARLY: tuple[int, ...]  # steps at which the paper looks at its models first (appendix A.8)
    EVERY: int  # steps between its later looks
    train: list[Example]
    valid: list[Example]
    pad_id: int

    def __init__(self, valid_tokens: int, settings: list[str]) -> None:
        self.valid_tokens, self.settings = valid_tokens, settings

    @abstractmethod
    def make_model(self, run: TrainingRun) -> Any:
        """A new model for one of the study's trainings."""

    def collate(self, examples: list[Example]) -> dict[str, Tensor]:
        """A padded batch."""
        return pad_batch(examples, self.pad_id)

    def valid_batches(self) -> Iterator[dict[str, Tensor]]:
        """The validation set in batches of like length, always the same."""
        rows = sorted(self.valid, key=lambda example: (len(example["input_ids"]), len(example["labels"])))
        for cut in cut_by_tokens(list(map(sizes_of, rows)), self.valid_tokens):
            yield self.collate(rows[cut])


class Translation(Task):
    """Sentence pairs, one SentencePiece vocabulary, the LSTM translator."""

    EARLY, EVERY = (0, 50, 100, 500, 1000, 1500), 2000

    def __init__(self, study: Any, data: DataArguments, config: Any) -> None:
        super().__init__(study.valid_tokens, study.set)
        for split in ("train", "valid"):
            if not getattr(data, split):
                raise InputError(f"--{split}", [], *GIVE_FILES)
        self.tokenizer = new_tokenizer(data, config, study.vocab_size, study.max_length)
        self.pad_id = self.tokenizer.pad_token_id
        self.train = list(encode_examples(self.tokenizer, open_split(data, "train"), study.max_length))
        valid = islice(open_split(data, "valid"), data.max_valid)
        self.valid = list(encode_examples(self.tokenizer, valid, study.max_length, cut=True))

    def make_model(self, run: TrainingRun) -> Any:
        """A new translator, or the proxy."""
        size = len(self.tokenizer)
        if run.attention_mode is None:
            return BagOfWordsProxy(BagOfWordsConfig(vocab_size=size, pad_token_id=self.pad_id))
        settings: dict[str, Any] = special_ids(self.tokenizer) | read_settings(self.settings, lstm.LuongSeq2SeqConfig)
        config = lstm.LuongSeq2SeqConfig(vocab_size=size, **settings | {"attention_mode": run.attention_mode})
        return lstm.LuongSeq2SeqForConditionalGeneration(config)


class Classification(Task):
    """Texts and their classes, the LSTM classifier; the set with planted keywords if there is no other."""

    EARLY, EVERY = (0, 10, 50, 100, 150, 200, 250), 250

    def __init__(self, study: Any, data: DataArguments, config: Any) -> None:
        super().__init__(study.valid_tokens, study.set)
        self.pad_id = PAD
        if len(data.train) > 1 or len(data.valid) != len(data.train):
            raise InputError("--train, --valid", (data.train, data.valid), "must be one file each, or none")
        train, valid = data.train + data.valid or self._plant(Path(config.output_dir), config.seed)
        texts = read_texts(train)
        self.ids = WordIds(texts, study.min_count)
        self.train = self.ids.encode(texts, study.max_length)
        self.valid = self.ids.encode(read_texts(valid)[: data.max_valid], study.max_length)

    def _plant(self, folder: Path, seed: int) -> list[Path]:
        """Files of the set with planted keywords; those of an earlier run are left as they are."""
        files = [folder / "planted-train.tsv", folder / "planted-valid.tsv"]
        for path, number in zip(files, (10_000, 1_000), strict=True):
            if not path.exists():
                write_texts(planted_texts(number, f"{seed}-{path.stem}"), path)
        return files

    def collate(self, examples: list[Example]) -> dict[str, Tensor]:
        """A padded batch with one label a text [B]."""
        batch = super().collate(examples)
        return batch | {"labels": batch["labels"][:, 0]}

    def make_model(self, run: TrainingRun) -> Any:
        """A new classifier, or the proxy."""
        sizes: dict[str, Any] = {"vocab_size": len(self.ids), "pad_token_id": PAD}
        if run.attention_mode is None:
            return BagOfWordsProxy(BagOfWordsConfig(output_size=len(self.ids.classes), **sizes))
        settings: dict[str, Any] = sizes | read_settings(self.settings, lstm.LSTMAttentionConfig)
        settings |= {"attention_mode": run.attention_mode, "num_labels": len(self.ids.classes)}
        return lstm.LSTMAttentionForSequenceClassification(lstm.LSTMAttentionConfig(**settings))


TASKS: dict[str, Any] = {"translation": Translation, "classification": Classification}


def make_task(study: Any, data: DataArguments, config: Any) -> Task:
    """The task that is asked for, with its data read."""
    check_choice("--task", study.task, TASKS)
    return TASKS[study.task](study, data, config)


def train_run(name: str, study: Any, task: Task, config: Any) -> None:
    """Train one of `RUNS` from its last checkpoint; snapshots are taken when the study says so, or else its task."""
    steps = evaluation_steps(config.max_steps, study.early_steps or task.EARLY, study.every or task.EVERY)
    run = RUNS[name]
    trainer = TranslationTrainer(
        model=task.make_model(run),
        args=config,
        train_dataset=task.train,
        data_collator=task.collate,
        callbacks=[SnapshotCallback(task.valid_batches, steps, run.scores, run.last_scores)],
    )
    trainer.train(resume_from_checkpoint=find_checkpoint(config))
    trainer.save_model()
    if tokenizer := getattr(task, "tokenizer", None):
        tokenizer.save_pretrained(config.output_dir)  # so that every command takes the folder as a translator
