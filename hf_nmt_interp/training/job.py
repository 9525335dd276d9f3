"""The training run of a script: the trainer and its data, resuming, the final test, and the outputs."""

import gc
import json
import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
import torch
from transformers import AutoModelForSeq2SeqLM

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import positions
from hf_nmt_interp.models.loading import load_model
from hf_nmt_interp.report.cards import curve_of
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.training.arguments import DataArguments, open_split, read_split
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.callbacks import ContributionCallback, Stopwatch
from hf_nmt_interp.training.cards import hub_name, write_card
from hf_nmt_interp.training.checkpoints import UNFINISHED, check_checksums, list_checkpoints
from hf_nmt_interp.training.data import Restartable, encode_examples
from hf_nmt_interp.training.scripts import find_scripts
from hf_nmt_interp.training.word_dropout import WordDropout


def bleu_and_chrf(tokenizer: Any, references: list[str], prediction) -> dict[str, float]:
    """Scores of generated ids against the references in the file."""
    ids = prediction.predictions[: len(references)]  # several processes fill the last batch with the first pairs
    texts = tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
    corpus: dict[str, Any] = {"bleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf}
    return {name: score(texts, [references]).score for name, score in corpus.items()}


def without_tokens(argv: Sequence[str]) -> list[str]:
    """A command line without the values of `--hub_token` and similar, and without anything like a Hub token.

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
    """The current command, with the values of tokens hidden."""
    script, *words = without_tokens(sys.argv)
    place = Path(script).resolve()
    if place.parent == Path(__file__).resolve().parents[1] / "trainer_scripts":  # installed
        name = next(name for name, path in find_scripts().items() if path == place)
        return shlex.join(["hf-nmt-interp", "train", name, *words])
    ours = place.parent.name == "trainer_scripts"  # other folders are local and not shown
    return shlex.join(["python", f"trainer_scripts/{place.name}" if ours else place.name, *words])


def find_checkpoint(config: Any) -> str | None:
    """The checkpoint to resume from: the requested one, else the last complete one in the output folder."""
    if given := config.resume_from_checkpoint:
        if not Path(given).is_dir():
            raise InputError("--resume_from_checkpoint", given, "is not a folder", "leave it out for the last one")
        check_checksums(given)
        return given
    complete = list_checkpoints(config.output_dir, resumable=True)
    if config.process_index == 0:
        last = list_checkpoints(config.output_dir, complete=False)[-1:]
        left = [path for path in last if path not in complete]
        for path in left + list_checkpoints(Path(config.output_dir, UNFINISHED), complete=False):
            print(f"{path} is incomplete (interrupted while saving) and is ignored")
        print(f"Resuming from {complete[-1]}" if complete else f"Starting a new run in {config.output_dir}")
    if not complete:
        return None
    check_checksums(complete[-1])
    return str(complete[-1])


def make_collator(model: Any, tokenizer: Any, data: DataArguments) -> Any:
    """The collator: pads, with word dropout if the arguments enable it."""
    pad = partial(pad_batch, pad_id=tokenizer.pad_token_id)
    source, target = data.source_word_dropout, data.target_word_dropout
    if not (source or target):
        return pad
    return WordDropout(pad, model, tokenizer, source=source, target=target, replacement=data.word_dropout_item)


class Job:
    """A trainer, `TranslationTrainer` or a subclass, on the data of a script.

    Training pairs with more than `max_length` tokens on a side, or than the model has positions, are dropped, others
    are truncated. `base` is the name of the checkpoint that the model came from.
    """

    def __init__(
        self, trainer_class: Any, model: Any, tokenizer: Any, data: Any, config: Any, max_length: int, base: Any = None
    ) -> None:
        self.data, self.base, self.stopwatch = data, base, Stopwatch()
        self.base_model = data.base_model or hub_name(base)
        limits = map(positions, (model.get_encoder(), model.get_decoder()))
        room = min(filter(None, limits), default=max_length)
        if room < max_length and config.process_index == 0:
            print(f"--max_length: {max_length} is more than the model's {room} positions, using {room}")
        self.max_length = max_length = min(max_length, room)
        self.valid_pairs, self.test_pairs = read_split(data, "valid"), read_split(data, "test")
        callbacks: list[Any] = [self.stopwatch]
        if data.contribution_steps:
            sources, targets = zip(*self.valid_pairs, strict=True)
            callbacks.append(ContributionCallback(tokenizer, sources, targets, steps=data.contribution_steps))
        config.generation_max_length = config.generation_max_length or max_length  # some checkpoints stop at 20
        self.cut = partial(encode_examples, tokenizer, max_length=max_length, cut=True)
        encode = partial(encode_examples, tokenizer, open_split(data, "train"), max_length)
        valid = self.valid_pairs[: data.max_valid]
        self.references = [target for _, target in valid]  # references of the set that is being translated
        score = partial(bleu_and_chrf, tokenizer, self.references)
        self.trainer = trainer_class(
            model=model,
            args=config,
            train_dataset=Restartable(encode) if data.streaming else list(encode()),
            eval_dataset=list(self.cut(valid)) or None,
            data_collator=make_collator(model, tokenizer, data),
            processing_class=tokenizer,
            compute_metrics=score if config.predict_with_generate else None,
            callbacks=callbacks,
        )
        for callback in callbacks[1:]:
            callback.log = self.trainer.log

    def train(self) -> dict[str, float]:
        """Train, from the last checkpoint if there is one; return time and steps over all restarts."""
        config = self.trainer.args
        try:
            self.trainer.train(resume_from_checkpoint=find_checkpoint(config))
        except KeyboardInterrupt as stop:
            kept = list_checkpoints(config.output_dir, resumable=True)
            text = f"{kept[-1]} is kept; run the same command again to resume from it" if kept else ""
            raise KeyboardInterrupt(text or "no checkpoint was saved yet; the same command starts over") from stop
        if bad := next((name for name, w in self.trainer.model.named_parameters() if not w.isfinite().all()), None):
            remedy = "train in another --output_dir, with a lower learning rate or a longer warm-up"
            raise InputError("training", None, f"produced NaN or inf in {bad}", remedy)
        watch, steps = self.stopwatch, self.trainer.state.global_step
        return {"train_seconds": watch.seconds, "train_cpu_seconds": watch.cpu_seconds, "train_steps": steps}

    def test(self, model: Any = None) -> dict[str, float]:
        """Scores of the test set, named `test_*`; none without a test set. A given model replaces the trained one."""
        if not self.test_pairs:
            return {}
        if model is not None:
            self.trainer.model = self.trainer.model_wrapped = model.to(self.trainer.args.device)
        pairs = sorted(self.test_pairs, key=lambda pair: len(pair[0]))  # translations of similar length end together
        valid = list(self.references)
        self.references[:] = [target for _, target in pairs]
        options: dict[str, Any] = {"metric_key_prefix": "test", "num_beams": self.data.test_beams}
        if self.data.test_length_penalty is not None:
            options["length_penalty"] = self.data.test_length_penalty
        metrics = self.trainer.predict(list(self.cut(pairs)), **options).metrics
        self.references[:] = valid
        return metrics

    def complete(self, export: str | None = None, known: dict[str, Any] | None = None) -> None:
        """Train, save, test; write results (including `before`) and the final model in float16 to `export`."""
        results, trainer = self.train(), self.trainer
        trainer.save_model(_internal_call=True)  # it is pushed below, with its card
        if self.test_pairs:
            results |= self.test()
            trainer.log_metrics("test", results)
        if trainer.is_world_process_zero():
            self.write((known or {}) | results)
            self.write_card(trainer.args.output_dir, results, self._model(), export)
            self.push(trainer.args.output_dir)
        self.end()

    def end(self) -> None:
        """Free the model that DDP wrapped, then end the process group.

        If the model were freed later, it would hold the last reference to the group, and torch might wait forever for
        a thread of the group that waits for the GIL.
        """
        self.trainer.accelerator.free_memory()
        self.trainer.model_wrapped = self.trainer.model
        gc.collect()
        self.trainer.accelerator.end_training()

    def _model(self) -> Any:
        """The trained model; with FSDP, where a process has only its part, the saved one."""
        args = self.trainer.args
        whole = not self.trainer.is_fsdp_enabled
        return self.trainer.model if whole else load_model(AutoModelForSeq2SeqLM, args.output_dir).to(args.device)

    def push(self, folder: str | Path) -> None:
        """Upload a saved model with its card, if the arguments ask for it."""
        if self.trainer.args.push_to_hub:
            print(f"Pushed: {self.trainer.push_saved(folder).url}")

    def write(self, results: dict[str, Any]) -> None:
        """Write `results.json` in the output folder, with the command."""
        path = Path(self.trainer.args.output_dir) / "results.json"
        write_whole(path, json.dumps({"command": command(), **results}, indent=2))

    def write_card(
        self, folder: str | Path, results: dict[str, Any], model: Any, export: str | None = None, shared: bool = True
    ) -> None:
        """Write the card of a saved model; also in `export`, with the model in float16.

        Only a `shared` model, which `push` uploads, gets its name on the Hub.
        """
        data, tokenizer = self.data, self.trainer.processing_class
        pairs = (self.test_pairs or self.valid_pairs)[: data.card_sentences]
        pairs = [pair for pair in pairs if any(encode_examples(tokenizer, [pair], self.max_length))]
        exact = model.dtype in (torch.float32, torch.float64)
        curve = curve_of(model, tokenizer, pairs, "test" if self.test_pairs else "valid") if exact else None
        about: dict[str, Any] = {
            "name": self.trainer.repo_name if shared else None,
            "base_model": self.base_model,
            "started_from": self.base.replace("demo:", "demo-") if self.base and "demo:" in self.base else None,
            "datasets": data.data_names or ([data.dataset] if data.dataset else None),
            **{name: getattr(data, name) for name in ("license", "source_lang", "target_lang")},
            "command": command(),
            "curve": curve,
            "results": results,
        }
        write_card(self.trainer.args, folder, **about)
        if export:
            model.half().save_pretrained(export)
            tokenizer.save_pretrained(export)
            write_card(self.trainer.args, export, **about | {"name": None})
