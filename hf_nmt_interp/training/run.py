"""What the training scripts share: data arguments, splits, the trainer on them, resuming, the final test."""

import gc
import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.text.tokens import Punctuation, separate_punctuation
from hf_nmt_interp.training.sharing import hub_name, write_card


@dataclass
class DataArguments:
    """Parallel text."""

    source_lang: str = field(default="en", metadata={"help": "Source language; its field in JSONL and in a set."})
    target_lang: str = field(default="de", metadata={"help": "Target language; its field in JSONL and in a set."})
    source_code: str | None = field(
        default=None, metadata={"help": "Code of the source language in a many-language checkpoint, e.g. eng_Latn."}
    )
    target_code: str | None = field(default=None, metadata={"help": "The same for the target, e.g. deu_Latn."})
    train: list[str] = field(default_factory=list, metadata={"help": "Two text files, one JSONL file, or a split."})
    valid: list[str] = field(default_factory=list, metadata={"help": "As train."})
    test: list[str] = field(default_factory=list, metadata={"help": "As train; scored once at the end."})
    dataset: str | None = field(
        default=None, metadata={"help": "`datasets` set (Hub id or folder) to take splits of."}
    )
    dataset_config: str | None = field(default=None, metadata={"help": "Its configuration."})
    streaming: bool = field(default=False, metadata={"help": "Stream the training data; needs --max_steps."})
    max_valid: int = field(default=500, metadata={"help": "Validation pairs that are translated at an evaluation."})
    vocabulary_pairs: int = field(default=1_000_000, metadata={"help": "Training pairs the vocabulary is made of."})
    punctuation: Punctuation = field(
        default="attached", metadata={"help": "Or separate: marks become words, for models of tokenised text."}
    )
    test_beams: int = field(default=4, metadata={"help": "Beam size of the final test."})
    source_word_dropout: float = field(default=0.0, metadata={"help": "Share of source tokens replaced in training."})
    target_word_dropout: float = field(
        default=0.0, metadata={"help": "Share of tokens replaced in what the decoder reads; labels stay."}
    )
    word_dropout_item: str = field(default="random", metadata={"help": "What replaces them: random (items) or unk."})
    contribution_steps: list[int] = field(
        default_factory=list, metadata={"help": "Steps at which contributions are measured on --valid."}
    )
    license: str | None = field(default=None, metadata={"help": "For the card: as the Hub spells it, e.g. cc-by-2.0."})
    base_model: str | None = field(
        default=None, metadata={"help": "For the card: Hub name of --model (default: its name, or as its card says)."}
    )
    data_names: list[str] = field(
        default_factory=list, metadata={"help": "For the card: names of the data on the Hub (default: --dataset)."}
    )
    card_sentences: int = field(
        default=20,
        metadata={"help": "For the card: test (or validation) pairs of the contribution curve; 0 for none."},
    )

    @property
    def codes(self) -> tuple[str, str]:
        """Language codes for a many-language checkpoint."""
        return self.source_code or self.source_lang, self.target_code or self.target_lang


def check_data(data: DataArguments, config: Any) -> None:
    """Refuse arguments that contradict each other, before anything is loaded."""
    if data.streaming and config.max_steps < 1:
        raise InputError("--streaming: a stream has no end; give --max_steps")
    if config.eval_strategy != "no" and not data.valid:
        raise InputError(f"--eval_strategy: {config.eval_strategy.value} needs --valid")
    if data.contribution_steps and not data.valid:
        raise InputError(f"--contribution_steps: {data.contribution_steps} need --valid")
    if not math.isfinite(config.learning_rate):
        raise InputError(f"--learning_rate: {config.learning_rate} must be finite, e.g. 5e-5")
    place = Path(config.output_dir)
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise InputError(f"--output_dir: {config.output_dir} cannot be made or written in; name another")


def open_split(data: DataArguments, split: str) -> Iterable[tuple[str, str]]:
    """Pairs of "train", "valid" or "test"; starts over at each `iter()`."""
    from hf_nmt_interp.text.corpus import read_dataset, read_pairs
    from hf_nmt_interp.training.data import Restartable

    where = getattr(data, split)
    fields: dict[str, Any] = {"source": data.source_lang, "target": data.target_lang}
    if data.dataset is not None:
        if len(where) != 1:
            raise InputError(f"--{split}: with --dataset give the name of one split, got {where}")
        options: dict[str, Any] = {"config": data.dataset_config, "split": where[0]}
        streaming = data.streaming and split == "train"
        read = partial(read_dataset, data.dataset, **fields, **options, streaming=streaming)
    elif len(where) in (1, 2):
        read = partial(read_pairs, *where, **fields)
    else:
        raise InputError(f"--{split}: give two text files or one JSONL file, got {where}")
    if data.punctuation == "attached":
        return Restartable(read)
    return Restartable(
        lambda: ((separate_punctuation(source), separate_punctuation(target)) for source, target in read())
    )


def bleu_and_chrf(tokenizer: Any, references: list[str], prediction) -> dict[str, float]:
    """Scores of generated ids against the references as they are in the file."""
    import numpy as np
    import sacrebleu

    ids = prediction.predictions[: len(references)]  # several processes fill their last batch up with the first pairs
    ids = np.where(ids < 0, tokenizer.pad_token_id, ids)
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    scores = sacrebleu.corpus_bleu(texts, [references]), sacrebleu.corpus_chrf(texts, [references])
    return {"bleu": scores[0].score, "chrf": scores[1].score}


def without_tokens(argv: Sequence[str]) -> list[str]:
    """A command line with the values of `--hub_token` and the like hidden, and what looks like a token of the Hub.

    >>> without_tokens(["train.py", "--hub_token", "hf_abc", "--push_to_hub_token=hf_abc", "--seed", "1"])
    ['train.py', '--hub_token', '***', '--push_to_hub_token=***', '--seed', '1']
    """
    shown, hide = [], False
    for argument in (re.sub(r"hf_[A-Za-z0-9]{20,}", "***", argument) for argument in argv):
        name, equals, _ = argument.partition("=")
        is_token = name.startswith("--") and name.endswith("token")
        shown.append("***" if hide else f"{name}=***" if is_token and equals else argument)
        hide = is_token and not equals
    return shown


def command() -> str:
    """The command that runs, with the values of tokens hidden."""
    script, *words = without_tokens(sys.argv)
    place = Path(script).resolve()
    ours = place.parent.name == "trainer_scripts"  # elsewhere the folder is this machine's own business
    return shlex.join(["python", f"trainer_scripts/{place.name}" if ours else place.name, *words])


def find_checkpoint(config: Any) -> str | None:
    """The checkpoint to resume from: the one asked for, else the last complete one in the output folder."""
    from hf_nmt_interp.training.checkpoints import UNFINISHED, list_checkpoints

    if given := config.resume_from_checkpoint:
        if not Path(given).is_dir():
            raise InputError(f"--resume_from_checkpoint: there is no folder {given!r}; without it, the last is taken")
        return given
    complete = list_checkpoints(config.output_dir, resumable=True)
    if config.process_index == 0:
        last = list_checkpoints(config.output_dir, complete=False)[-1:]
        left = [path for path in last if path not in complete]
        for path in left + list_checkpoints(Path(config.output_dir, UNFINISHED), complete=False):
            print(f"{path} is incomplete (stopped while it was written) and will be ignored")
        print(f"Going on from {complete[-1]}" if complete else f"A new run in {config.output_dir}")
    return str(complete[-1]) if complete else None


def load_checkpoint(name: str, data: DataArguments) -> tuple[Any, Any]:
    """The seq2seq model to go on from, in float32, and its tokenizer.

    Args:
        name: folder, Hub id, or a translator in the box such as `demo:en-de`.
        data: gives the languages.
    """
    from transformers import AutoModelForSeq2SeqLM

    from hf_nmt_interp.decoding.languages import set_languages
    from hf_nmt_interp.models.loading import load_model, load_tokenizer

    model, tokenizer = load_model(AutoModelForSeq2SeqLM, name), load_tokenizer(name)
    set_languages(model, tokenizer, *data.codes)
    return model, tokenizer


def new_tokenizer(data: DataArguments, config: Any, vocab_size: int, max_length: int) -> Any:
    """A tokenizer made of the training pairs; the one in the output folder if an earlier run has made it."""
    from transformers import MarianTokenizer

    from hf_nmt_interp.training.vocabulary import train_marian_tokenizer

    folder = Path(config.output_dir) / "tokenizer"
    with config.main_process_first(desc="vocabulary"):
        if not (folder / "tokenizer_config.json").is_file():
            pairs = islice(open_split(data, "train"), data.vocabulary_pairs)
            sentences = (side for pair in pairs for side in pair)
            part = folder.with_name("tokenizer.part")  # appears under its name when it is whole
            train_marian_tokenizer(sentences, part, vocab_size, data.source_lang, data.target_lang, max_length)
            shutil.rmtree(folder, ignore_errors=True)
            part.rename(folder)
    tokenizer = MarianTokenizer.from_pretrained(folder)
    if len(tokenizer) != vocab_size:
        raise InputError(
            f"--vocab_size: {vocab_size}, but {folder} of an earlier run has {len(tokenizer)}; "
            "give that, or another --output_dir"
        )
    return tokenizer


def special_ids(tokenizer: Any) -> dict[str, int]:
    """Fields of a new model's configuration: padding begins a translation and EOS ends it, as in Marian."""
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    return {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": eos, "forced_eos_token_id": eos}


def read_settings(texts: Iterable[str], kind: Any) -> dict[str, Any]:
    """Fields of a new model's configuration from NAME=VALUE, e.g. of `--set`.

    Args:
        texts: as the user wrote them.
        kind: the configuration's class.
    """
    known = [one for one in kind.__annotations__ if one != "vocab_size" and not one.endswith("_id")]
    found: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise InputError(f"--set: {text!r} sets none of {', '.join(known)}")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):  # no JSON, or a number or a nesting that Python does not read
            found[name] = value
    return found


def make_model(make_config: Callable[[], Any], tokenizer: Any, max_length: int, arguments: str) -> Any:
    """A new model with random weights, which translates with 4 beams and never writes padding.

    Args:
        make_config: gives its configuration.
        tokenizer: its tokenizer.
        max_length: of its translations.
        arguments: where the sizes were given, for messages.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    try:
        model: Any = AutoModelForSeq2SeqLM.from_config(make_config())
    except InputError:
        raise
    except (ValueError, TypeError, RuntimeError, ZeroDivisionError, StrictDataclassError) as error:
        raise InputError(f"{arguments}: {error}; no model can be made of this") from error
    model.generation_config = GenerationConfig(
        num_beams=4, max_length=max_length, bad_words_ids=[[tokenizer.pad_token_id]], **special_ids(tokenizer)
    )
    return model


def make_collator(model: Any, tokenizer: Any, data: DataArguments) -> Any:
    """Padding, and word dropout if the arguments ask for it."""
    from hf_nmt_interp.training.batching import pad_batch
    from hf_nmt_interp.training.word_dropout import WordDropout

    pad = partial(pad_batch, pad_id=tokenizer.pad_token_id)
    source, target = data.source_word_dropout, data.target_word_dropout
    if not (source or target):
        return pad
    return WordDropout(pad, model, tokenizer, source=source, target=target, replacement=data.word_dropout_item)


class Run:
    """A trainer on the data of a script.

    Args:
        trainer_class: `TranslationTrainer` or a subclass.
        model: to be trained.
        tokenizer: its tokenizer.
        data: where the pairs are.
        config: of the trainer.
        max_length: most tokens of a side, if the model has as many positions; longer training pairs are dropped,
            others cut.
        base: name of the checkpoint that the model came from.
    """

    def __init__(
        self,
        trainer_class: Any,
        model: Any,
        tokenizer: Any,
        data: DataArguments,
        config: Any,
        max_length: int,
        base: str | None = None,
    ):
        from hf_nmt_interp.models.families import positions
        from hf_nmt_interp.training.callbacks import ContributionCallback, Stopwatch
        from hf_nmt_interp.training.data import Restartable, encode_pairs

        self.data, self.base, self.stopwatch = data, base, Stopwatch()
        self.base_model = data.base_model or hub_name(base)
        limits = map(positions, (model.get_encoder(), model.get_decoder()))
        room = min(filter(None, limits), default=max_length)
        if room < max_length and config.process_index == 0:
            print(f"--max_length: {max_length} is more than the model's {room} positions, so it is {room}")
        self.max_length = max_length = min(max_length, room)
        for split in ("valid", "test"):  # what is wrong with them is said before the training
            if getattr(data, split) and not sum(1 for _ in open_split(data, split)):
                raise InputError(f"--{split}: {' '.join(getattr(data, split))} has no pairs; leave it out")
        callbacks: list[Any] = [self.stopwatch]
        if data.contribution_steps:
            sources, targets = zip(*open_split(data, "valid"), strict=True)
            callbacks.append(ContributionCallback(tokenizer, sources, targets, steps=data.contribution_steps))
        config.generation_max_length = config.generation_max_length or max_length  # some checkpoints stop at 20
        self.cut = partial(encode_pairs, tokenizer, max_length=max_length, cut=True)
        encode = partial(encode_pairs, tokenizer, open_split(data, "train"), max_length)
        valid = list(islice(open_split(data, "valid"), data.max_valid)) if data.valid else []
        self.references = [target for _, target in valid]  # of the set that is being translated
        self.trainer = trainer_class(
            model=model,
            args=config,
            train_dataset=Restartable(encode) if data.streaming else list(encode()),
            eval_dataset=list(self.cut(valid)) or None,
            data_collator=make_collator(model, tokenizer, data),
            processing_class=tokenizer,
            compute_metrics=partial(bleu_and_chrf, tokenizer, self.references)
            if config.predict_with_generate
            else None,
            callbacks=callbacks,
        )
        for callback in callbacks[1:]:
            callback.log = self.trainer.log

    def train(self) -> dict[str, float]:
        """Train, going on from the last checkpoint; how long and how far over all restarts."""
        self.trainer.train(resume_from_checkpoint=find_checkpoint(self.trainer.args))
        if bad := next((name for name, w in self.trainer.model.named_parameters() if not w.isfinite().all()), None):
            raise InputError(
                f"training led to NaN or inf in {bad}; train anew in another --output_dir, with a lower learning "
                "rate or a longer warm-up"
            )
        watch, steps = self.stopwatch, self.trainer.state.global_step
        return {"train_seconds": watch.seconds, "train_cpu_seconds": watch.cpu_seconds, "train_steps": steps}

    def test(self, model: Any = None) -> dict[str, float]:
        """Scores of the test set, named `test_*`.

        Args:
            model: to be tested instead of the trained one, from now on.
        """
        if model is not None:
            self.trainer.model = self.trainer.model_wrapped = model.to(self.trainer.args.device)
        pairs = sorted(open_split(self.data, "test"), key=lambda pair: len(pair[0]))  # like lengths end together
        valid = list(self.references)
        self.references[:] = [target for _, target in pairs]
        options: dict[str, Any] = {"metric_key_prefix": "test", "num_beams": self.data.test_beams}
        metrics = self.trainer.predict(list(self.cut(pairs)), **options).metrics
        self.references[:] = valid
        return metrics

    def complete(self, export: str | None = None, known: dict[str, Any] | None = None) -> None:
        """Train, save, test and write the results.

        Args:
            export: folder for the final model in float16.
            known: results that are known before, to be written too.
        """
        results, trainer = self.train(), self.trainer
        trainer.save_model(_internal_call=True)  # it is pushed below, with its card
        if self.data.test:
            results |= self.test()
            trainer.log_metrics("test", results)
        if trainer.is_world_process_zero():
            self.write((known or {}) | results)
            self.write_card(trainer.args.output_dir, results, self._model(), [export] if export else [])
            self.push(trainer.args.output_dir)
        self.end()

    def end(self) -> None:
        """End the group of processes, but before it the model that DDP wrapped.

        If that were freed later, it would be the last to know the group, and torch might wait forever for a thread of
        the group that waits for Python's lock.
        """
        self.trainer.accelerator.free_memory()
        self.trainer.model_wrapped = self.trainer.model
        gc.collect()
        self.trainer.accelerator.end_training()

    def _model(self) -> Any:
        """The trained model; with FSDP, of which a process has only its part, as it was saved."""
        from transformers import AutoModelForSeq2SeqLM

        from hf_nmt_interp.models.loading import load_model

        trainer = self.trainer
        if not trainer.is_fsdp_enabled:
            return trainer.model
        return load_model(AutoModelForSeq2SeqLM, trainer.args.output_dir).to(trainer.args.device)

    def push(self, folder: str | Path) -> None:
        """Send a saved model with its card, if the arguments say so."""
        if self.trainer.args.push_to_hub:
            print(f"Pushed: {self.trainer.push_saved(folder).url}")

    def write(self, results: dict[str, Any]) -> None:
        """`results.json` in the output folder, with the command that made them."""
        found = {"command": command(), **results}
        path = Path(self.trainer.args.output_dir) / "results.json"
        write_whole(path, json.dumps(found, indent=2))

    def write_card(
        self,
        folder: str | Path,
        results: dict[str, Any],
        model: Any,
        exports: Sequence[str] = (),
        *,
        shared: bool = True,
    ) -> None:
        """The card of a saved model, from what the run knows of it.

        Args:
            folder: where it was saved.
            results: scores and times.
            model: the same model, in memory.
            exports: folders that get it in float16, with the card.
            shared: whether it is the one that `push` sends, and has its name on the Hub.
        """
        import torch

        from hf_nmt_interp.report.cards import curve_of
        from hf_nmt_interp.training.data import encode_pairs

        data, tokenizer = self.data, self.trainer.processing_class
        split = "test" if data.test else "valid" if data.valid else None
        pairs = list(islice(open_split(data, split), data.card_sentences)) if split else []
        pairs = [pair for pair in pairs if any(encode_pairs(tokenizer, [pair], self.max_length))]
        curve = None
        if model.dtype in (torch.float32, torch.float64):
            curve = curve_of(model, tokenizer, pairs, split or "")
        about: dict[str, Any] = {
            "name": self.trainer.repo_name if shared else None,
            "base_model": self.base_model,
            "started_from": self.base.replace("demo:", "demo-") if self.base and "demo:" in self.base else None,
            "datasets": data.data_names or ([data.dataset] if data.dataset else None),
            "license": data.license,
            "source_lang": data.source_lang,
            "target_lang": data.target_lang,
            "command": command(),
            "curve": curve,
            "results": results,
        }
        write_card(self.trainer.args, folder, **about)
        for export in exports:
            model.half().save_pretrained(export)
            tokenizer.save_pretrained(export)
            write_card(self.trainer.args, export, **about | {"name": None})
