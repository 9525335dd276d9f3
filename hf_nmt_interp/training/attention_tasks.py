"""Trainings of the study of how attention learns: translation, and classification as translation into one word."""

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


class Task:
    """Data and models of a task."""

    EARLY: tuple[int, ...]  # steps at which the paper looks at its models first (appendix A.8)
    EVERY: int  # steps between its later looks
    MODEL: Any
    train: list[Example]
    valid: list[Example]
    fields: dict[str, Any]  # of the model's configuration, that follow from the data

    def __init__(self, valid_tokens: int, settings: list[str]) -> None:
        self.valid_tokens, self.settings = valid_tokens, settings

    def make_model(self, run: TrainingRun) -> Any:
        """A new model, or the proxy, for one of the study's trainings."""
        if run.attention_mode is None:
            sizes: dict[str, Any] = {name: self.fields[name] for name in ("vocab_size", "pad_token_id")}
            return BagOfWordsProxy(BagOfWordsConfig(output_size=self.fields.get("num_labels"), **sizes))
        kind = self.MODEL.config_class
        settings = self.fields | read_settings(self.settings, kind) | {"attention_mode": run.attention_mode}
        return self.MODEL(kind(**settings))

    def collate(self, examples: list[Example]) -> dict[str, Tensor]:
        """A padded batch."""
        return pad_batch(examples, self.fields["pad_token_id"])

    def valid_batches(self) -> Iterator[dict[str, Tensor]]:
        """The validation set in batches of like length, always the same."""
        rows = sorted(self.valid, key=lambda example: (len(example["input_ids"]), len(example["labels"])))
        for cut in cut_by_tokens(list(map(sizes_of, rows)), self.valid_tokens):
            yield self.collate(rows[cut])


class Translation(Task):
    """Sentence pairs, one SentencePiece vocabulary, the LSTM translator."""

    EARLY, EVERY = (0, 50, 100, 500, 1000, 1500), 2000
    MODEL = lstm.LuongSeq2SeqForConditionalGeneration

    def __init__(self, study: Any, data: DataArguments, config: Any) -> None:
        super().__init__(study.valid_tokens, study.set)
        for split in ("train", "valid"):
            if not getattr(data, split):
                raise InputError(f"--{split}", [], *GIVE_FILES)
        self.tokenizer = new_tokenizer(data, config, study.vocab_size, study.max_length)
        self.fields = {"vocab_size": len(self.tokenizer), **special_ids(self.tokenizer)}
        self.train = list(encode_examples(self.tokenizer, open_split(data, "train"), study.max_length))
        valid = islice(open_split(data, "valid"), data.max_valid)
        self.valid = list(encode_examples(self.tokenizer, valid, study.max_length, cut=True))


class Classification(Task):
    """Texts and their classes, the LSTM classifier; the set with planted keywords if there is no other."""

    EARLY, EVERY = (0, 10, 50, 100, 150, 200, 250), 250
    MODEL = lstm.LSTMAttentionForSequenceClassification

    def __init__(self, study: Any, data: DataArguments, config: Any) -> None:
        super().__init__(study.valid_tokens, study.set)
        if len(data.train) > 1 or len(data.valid) != len(data.train):
            raise InputError("--train, --valid", (data.train, data.valid), "must be one file each, or none")
        train, valid = data.train + data.valid or self._plant(Path(config.output_dir), config.seed)
        texts = read_texts(train)
        ids = WordIds(texts, study.min_count)
        self.fields = {"vocab_size": len(ids), "pad_token_id": PAD, "num_labels": len(ids.classes)}
        self.train = ids.encode(texts, study.max_length)
        self.valid = ids.encode(read_texts(valid)[: data.max_valid], study.max_length)

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
