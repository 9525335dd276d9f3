"""Training runs of the attention-learning study: translation, and classification as translation into one word."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import sacrebleu
import torch
from torch import Tensor

from hf_nmt_interp.decoding.batch import evaluating
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models import lstm
from hf_nmt_interp.models.proxy import BagOfWordsConfig, BagOfWordsProxy
from hf_nmt_interp.studies.attention_learning import (
    PERFORMANCES,
    RUNS,
    SNAPSHOTS,
    TrainingRun,
    evaluation_steps,
    is_complete,
)
from hf_nmt_interp.studies.keywords import (
    PAD,
    TABLES,
    Text,
    WordIds,
    planted_texts,
    read_rows,
    read_texts,
    write_texts,
)
from hf_nmt_interp.studies.logistic import as_proxy, best_logistic
from hf_nmt_interp.studies.snapshots import take_snapshot
from hf_nmt_interp.text.corpus import Example
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.text.tables import csv_text
from hf_nmt_interp.text.tokens import separate_punctuation
from hf_nmt_interp.text.vectors import read_vectors
from hf_nmt_interp.training.arguments import GIVE_FILES, DataArguments, open_split
from hf_nmt_interp.training.batching import cut_by_tokens, pad_batch, sizes_of
from hf_nmt_interp.training.callbacks import SnapshotCallback
from hf_nmt_interp.training.data import encode_examples
from hf_nmt_interp.training.job import find_checkpoint
from hf_nmt_interp.training.new_models import new_tokenizer, read_settings, special_ids
from hf_nmt_interp.training.translation import TranslationTrainer


class Task:
    """Data and models of a task."""

    EARLY: tuple[int, ...]  # first steps that the paper evaluates (appendix A.8)
    EVERY: int  # steps between its later evaluations
    MODEL: Any
    train: list[Example]
    valid: list[Example]
    fields: dict[str, Any]  # fields of the model's configuration that follow from the data

    def __init__(self, study: Any, data: DataArguments) -> None:
        self.valid_tokens, self.settings, self.max_valid = study.valid_tokens, study.set, data.max_valid

    def make_model(self, run: TrainingRun) -> Any:
        """A new model, or the proxy, for one of the study's training runs."""
        if run.attention_mode is None:
            sizes: dict[str, Any] = {name: self.fields[name] for name in ("vocab_size", "pad_token_id")}
            return BagOfWordsProxy(BagOfWordsConfig(output_size=self.fields.get("num_labels"), **sizes))
        kind = self.MODEL.config_class
        settings = self.fields | read_settings(self.settings, kind) | {"attention_mode": run.attention_mode}
        model = self.MODEL(kind(**settings))
        for name, parameter in model.named_parameters() if run.trained else ():
            parameter.requires_grad_(name.startswith(run.trained))
        return model

    def looked_at(self, on: str) -> list[Example]:
        """The validation set, or a fixed random sample of the training set of the same size."""
        if on == "valid":
            return self.valid
        return Random(0).sample(self.train, min(self.max_valid, len(self.train)))

    def collate(self, examples: list[Example]) -> dict[str, Tensor]:
        """A padded batch."""
        return pad_batch(examples, self.fields["pad_token_id"])

    def batches(self, on: str = "valid") -> Iterator[dict[str, Tensor]]:
        """A set in batches of similar length, the same in each call."""
        rows = sorted(self.looked_at(on), key=lambda example: (len(example["input_ids"]), len(example["labels"])))
        for cut in cut_by_tokens(list(map(sizes_of, rows)), self.valid_tokens):
            yield self.collate(rows[cut])

    def bleu(self, model: Any, on: str, sentences: int) -> float:
        """Corpus BLEU, from 0 to 1, of greedy translations of the first sentences of a set."""
        raise NotImplementedError("only translators have BLEU")

    def finish(self, folder: Path, on: list[str]) -> None:
        """Fit models that are not trained in steps."""


class Translation(Task):
    """Sentence pairs, one SentencePiece vocabulary, the LSTM translator."""

    EARLY, EVERY = (0, 50, 100, 500, 1000, 1500), 2000
    MODEL = lstm.LuongSeq2SeqForConditionalGeneration

    def __init__(self, study: Any, data: DataArguments, config: Any) -> None:
        super().__init__(study, data)
        if study.embeddings:
            raise InputError(
                "--embeddings", study.embeddings, "are word vectors, but translators read SentencePiece pieces"
            )
        self.max_length = study.max_length
        for split in ("train", "valid"):
            if not getattr(data, split):
                raise InputError(f"--{split}", [], *GIVE_FILES)
        self.tokenizer = new_tokenizer(data, config, study.vocab_size, study.max_length)
        self.fields = {"vocab_size": len(self.tokenizer), **special_ids(self.tokenizer)}
        self.train = list(encode_examples(self.tokenizer, open_split(data, "train"), study.max_length))
        valid = islice(open_split(data, "valid"), data.max_valid)
        self.valid = list(encode_examples(self.tokenizer, valid, study.max_length, cut=True))

    def bleu(self, model: Any, on: str, sentences: int) -> float:
        """Corpus BLEU, from 0 to 1, of greedy translations of the first sentences of a set."""
        taken = sorted(self.looked_at(on)[:sentences], key=lambda example: len(example["input_ids"]))
        texts: list[list[str]] = [[], []]
        for cut in cut_by_tokens(list(map(sizes_of, taken)), self.valid_tokens):
            batch = self.collate(taken[cut])
            with torch.no_grad(), evaluating(model):
                ids = model.generate(
                    batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=1, do_sample=False,
                    max_length=self.max_length, suppress_tokens=[self.fields["pad_token_id"]],
                )  # fmt: skip
            references = [example["labels"] for example in taken[cut]]
            for side, rows in zip(texts, (ids, references), strict=True):
                side += self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        return sacrebleu.corpus_bleu(texts[0], [texts[1]]).score / 100


class Classification(Task):
    """Texts and their classes, the LSTM classifier; by default the generated set with planted keywords."""

    EARLY, EVERY = (0, 10, 50, 100, 150, 200, 250), 250
    MODEL = lstm.LSTMAttentionForSequenceClassification

    def __init__(self, study: Any, data: DataArguments, config: Any) -> None:
        super().__init__(study, data)
        if len(data.train) > 1 or len(data.valid) != len(data.train):
            raise InputError("--train, --valid", (data.train, data.valid), "must each be one file or split, or none")
        if data.dataset and not data.train:
            raise InputError("--train, --valid", None, "are missing", "with --dataset, give the names of two splits")
        names = data.train + data.valid or self._plant(Path(config.output_dir), config.seed)
        train, valid = (self._read(name, study, data) for name in names)
        self.ids = WordIds(train, study.min_count)
        self.fields = {"vocab_size": len(self.ids), "pad_token_id": PAD, "num_labels": len(self.ids.classes)}
        self.train = self.ids.encode(train, study.max_length)
        self.valid = self.ids.encode(valid[: data.max_valid], study.max_length)
        self.embeddings = study.embeddings

    def _read(self, name: str | Path, study: Any, data: DataArguments) -> list[Text]:
        """Texts of a split, of a file with named fields, or of lines with a class, a tab and words."""
        fields = {"text": study.text_field, "label": study.label_field}
        if data.dataset:
            texts = read_rows(data.dataset, data.dataset_config, str(name), **fields)
        else:
            texts = read_rows(str(name), **fields) if Path(name).suffix in TABLES else read_texts(name)
        if data.punctuation == "attached":
            return texts
        return [(label, separate_punctuation(" ".join(words)).split()) for label, words in texts]

    def make_model(self, run: TrainingRun) -> Any:
        """A new model, or the proxy; the model's embeddings start from the word vectors of --embeddings."""
        model = super().make_model(run)
        if self.embeddings and run.attention_mode:
            vectors = read_vectors(self.embeddings, self.ids.words, model.config.embedding_size)
            if not vectors:
                raise InputError("--embeddings", self.embeddings, "has none of the words of the training texts")
            with torch.no_grad():
                model.embed_tokens.weight[[self.ids.words[word] for word in vectors]] = torch.tensor(
                    [*vectors.values()]
                )
            print(f"embeddings: {len(vectors)} of {len(self.ids.words)} words are in {self.embeddings}")
        return model

    def finish(self, folder: Path, on: list[str]) -> None:
        """Fit the logistic regression, and evaluate it on the sets."""
        if is_complete(folder / "logistic", 0, on):
            return
        weight, rows = best_logistic(self.train, self.valid, self.fields["vocab_size"], self.fields["num_labels"])
        write_whole(folder / "logistic" / "penalties.csv", csv_text(rows))
        for name in on:
            found = take_snapshot(as_proxy(weight, PAD), self.batches(name), ("beta",))
            found.save(folder / "logistic" / SNAPSHOTS[name] / "0.safetensors")

    def _plant(self, folder: Path, seed: int) -> list[Path]:
        """Files of the set with planted keywords; existing ones are reused."""
        files = [folder / "planted-train.tsv", folder / "planted-valid.tsv"]
        for path, number in zip(files, (10_000, 1_000), strict=True):
            if not path.exists():
                write_texts(planted_texts(number, f"{seed}-{path.stem}"), path)
        return files

    def collate(self, examples: list[Example]) -> dict[str, Tensor]:
        """A padded batch with one label per text [B]."""
        batch = super().collate(examples)
        return batch | {"labels": batch["labels"][:, 0]}


TASKS: dict[str, Any] = {"translation": Translation, "classification": Classification}


def make_task(study: Any, data: DataArguments, config: Any) -> Task:
    """The requested task, with its data read."""
    check_choice("--task", study.task, TASKS)
    check_choice("--performance", study.performance, PERFORMANCES)
    for name in study.on:
        check_choice("--on", name, SNAPSHOTS)
    if study.performance == "bleu" and study.task != "translation":
        raise InputError("--performance", "bleu", "is supported only for --task translation", "use accuracy")
    return TASKS[study.task](study, data, config)


def train_run(name: str, study: Any, task: Task, config: Any) -> None:
    """Train one of `RUNS` from its last checkpoint; snapshots are taken at the steps of the study, or of its task."""
    steps = evaluation_steps(config.max_steps, study.early_steps or task.EARLY, study.every or task.EVERY)
    run = RUNS[name]
    bleu = partial(task.bleu, sentences=study.bleu_sentences)
    scored = study.performance == "bleu" and run.translates
    model = task.make_model(run)
    last_scores = run.last_scores
    if name == "standard" and getattr(model.config, "output", None) == "linear":
        last_scores = (*last_scores, "alpha_opt")
    looks = SnapshotCallback(task.batches, steps, run.scores, last_scores, study.on, bleu if scored else None)
    trainer = TranslationTrainer(
        model=model,
        args=config,
        train_dataset=task.train,
        data_collator=task.collate,
        callbacks=[looks],
    )
    trainer.train(resume_from_checkpoint=find_checkpoint(config))
    trainer.save_model()
    if tokenizer := getattr(task, "tokenizer", None):
        tokenizer.save_pretrained(config.output_dir)  # so every command accepts the folder as a translator
