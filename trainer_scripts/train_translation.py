"""Train a Marian translator from scratch, or go on from any seq2seq checkpoint.

Examples:
    python trainer_scripts/train_translation.py --output_dir runs/en-de --source_lang en --target_lang de \
        --train train.en train.de --valid valid.en valid.de --test test.en test.de \
        --tokens_per_batch 4096 --noam_scale 2 --warmup_steps 4000 --max_steps 20000 --label_smoothing_factor 0.1 \
        --save_steps 1000 --save_total_limit 5 --average_last 5 --eval_strategy steps --eval_steps 1000

    accelerate launch --num_processes 2 trainer_scripts/train_translation.py ...   (the same arguments)

Data: two line-parallel text files, or one JSONL file, or `--dataset NAME` for any `datasets` set (Hub or local), whose
splits are then named by --train, --valid and --test. The same command run again goes on from the last complete
checkpoint in --output_dir, and gives what it would have given had it never been stopped.
"""

import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError


@dataclass
class ModelArguments:
    """The translator: from a checkpoint, or new with these sizes."""

    model: str | None = field(default=None, metadata={"help": "Checkpoint (folder or Hub id) to go on from."})
    vocab_size: int = field(default=8000, metadata={"help": "SentencePiece pieces of a new model, both languages."})
    d_model: int = field(default=256, metadata={"help": "Width."})
    layers: int = field(default=4, metadata={"help": "Layers of the encoder, and of the decoder."})
    heads: int = field(default=8, metadata={"help": "Attention heads."})
    ffn_dim: int = field(default=512, metadata={"help": "Width of the feed-forward layers."})
    dropout: float = field(default=0.1, metadata={"help": "Dropout on the residual branches."})
    max_length: int = field(
        default=128, metadata={"help": "Most tokens of a side; longer training pairs are dropped, test pairs cut."}
    )
    export: str | None = field(default=None, metadata={"help": "Folder for the final model in float16."})


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
    test_beams: int = field(default=4, metadata={"help": "Beam size of the final test."})


def make_parser() -> Any:
    from transformers import HfArgumentParser

    from hf_nmt_interp.training.translation import TranslationConfig

    kinds: Any = (ModelArguments, DataArguments, TranslationConfig)
    return HfArgumentParser(kinds)


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
        return Restartable(partial(read_dataset, data.dataset, **fields, **options, streaming=streaming))
    if len(where) not in (1, 2):
        raise InputError(f"--{split}: give two text files or one JSONL file, got {where}")
    return Restartable(partial(read_pairs, *where, **fields))


def load_model(arguments: ModelArguments, data: DataArguments, config: Any, pairs: Iterable) -> tuple[Any, Any]:
    """The checkpoint to go on from, or a new model with a vocabulary made of the training pairs."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianTokenizer

    from hf_nmt_interp.training.data import set_languages
    from hf_nmt_interp.training.vocabulary import train_marian_tokenizer

    if arguments.model:
        model = AutoModelForSeq2SeqLM.from_pretrained(arguments.model, dtype="float32")
        tokenizer = AutoTokenizer.from_pretrained(arguments.model)
        codes = data.source_code or data.source_lang, data.target_code or data.target_lang
        set_languages(model, tokenizer, *codes)
        return model, tokenizer
    folder = Path(config.output_dir) / "tokenizer"
    with config.main_process_first(desc="vocabulary"):
        if not (folder / "tokenizer_config.json").is_file():
            sentences = (side for pair in islice(pairs, data.vocabulary_pairs) for side in pair)
            languages = data.source_lang, data.target_lang
            train_marian_tokenizer(sentences, folder, arguments.vocab_size, *languages, arguments.max_length)
    tokenizer = MarianTokenizer.from_pretrained(folder)
    if len(tokenizer) != arguments.vocab_size:
        raise InputError(
            f"--vocab_size: {arguments.vocab_size}, but {folder} of an earlier run has {len(tokenizer)}; "
            "give that, or another --output_dir"
        )
    return new_model(arguments, tokenizer), tokenizer


def new_model(arguments: ModelArguments, tokenizer: Any) -> Any:
    """A MarianMT model with random weights."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    sizes = {"layers": arguments.layers, "attention_heads": arguments.heads, "ffn_dim": arguments.ffn_dim}
    both: dict[str, Any] = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
    }
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=arguments.d_model,
        **both,
        dropout=arguments.dropout,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=2 * arguments.max_length,
        **ids,
    )
    model = MarianMTModel(config)
    model.generation_config = GenerationConfig(
        num_beams=4, max_length=arguments.max_length, bad_words_ids=[[tokenizer.pad_token_id]], **ids
    )
    return model


def bleu_and_chrf(tokenizer: Any, references: list[str], prediction) -> dict[str, float]:
    """Scores of generated ids against the references as they are in the file."""
    import numpy as np
    import sacrebleu

    ids = prediction.predictions[: len(references)]  # several processes fill their last batch up with the first pairs
    ids = np.where(ids < 0, tokenizer.pad_token_id, ids)
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    scores = sacrebleu.corpus_bleu(texts, [references]), sacrebleu.corpus_chrf(texts, [references])
    return {"bleu": scores[0].score, "chrf": scores[1].score}


def find_checkpoint(config: Any) -> str | None:
    """The checkpoint to resume from: the one asked for, else the last complete one in the output folder."""
    from hf_nmt_interp.training.checkpoints import list_checkpoints

    if config.resume_from_checkpoint:
        return config.resume_from_checkpoint
    complete, found = (list_checkpoints(config.output_dir, complete=only) for only in (True, False))
    if config.process_index == 0:
        if found and found[-1] not in complete[-1:]:
            print(f"{found[-1]} is incomplete (stopped while it was written) and will be ignored")
        print(f"Going on from {complete[-1]}" if complete else f"A new run in {config.output_dir}")
    return str(complete[-1]) if complete else None


def make_trainer(model_args: ModelArguments, data: DataArguments, config: Any) -> tuple[Any, list[str]]:
    """The trainer, and its list of references, to be filled anew for another test set."""
    from hf_nmt_interp.training.batching import pad_batch
    from hf_nmt_interp.training.callbacks import Stopwatch
    from hf_nmt_interp.training.data import Restartable, encode_pairs
    from hf_nmt_interp.training.translation import TranslationTrainer

    if data.streaming and config.max_steps < 1:
        raise InputError("--streaming: a stream has no end; give --max_steps")
    if config.eval_strategy != "no" and not data.valid:
        raise InputError(f"--eval_strategy: {config.eval_strategy.value} needs --valid")
    train_pairs = open_split(data, "train")
    model, tokenizer = load_model(model_args, data, config, train_pairs)
    encode = partial(encode_pairs, tokenizer, train_pairs, model_args.max_length)
    valid_pairs = list(islice(open_split(data, "valid"), data.max_valid)) if data.valid else []
    references = [target for _, target in valid_pairs]
    trainer = TranslationTrainer(
        model=model,
        args=config,
        train_dataset=Restartable(encode) if data.streaming else list(encode()),
        eval_dataset=list(encode_pairs(tokenizer, valid_pairs, model_args.max_length, cut=True)) or None,
        data_collator=partial(pad_batch, pad_id=tokenizer.pad_token_id),
        processing_class=tokenizer,
        compute_metrics=partial(bleu_and_chrf, tokenizer, references) if config.predict_with_generate else None,
        callbacks=[Stopwatch()],
    )
    return trainer, references


def main() -> None:
    from hf_nmt_interp.training.launch import start_missing_processes

    start_missing_processes()
    arguments: tuple[Any, ...] = make_parser().parse_args_into_dataclasses()
    model_args, data, config = arguments

    from transformers import set_seed

    from hf_nmt_interp.training.callbacks import Stopwatch
    from hf_nmt_interp.training.data import encode_pairs

    set_seed(config.seed)
    trainer, references = make_trainer(model_args, data, config)
    tokenizer, out = trainer.processing_class, Path(config.output_dir)
    trainer.train(resume_from_checkpoint=find_checkpoint(config))
    trainer.save_model()
    seconds = next(c.seconds for c in trainer.callback_handler.callbacks if isinstance(c, Stopwatch))
    results = {"train_seconds": seconds, "train_steps": trainer.state.global_step}
    if data.test:
        test_pairs = list(open_split(data, "test"))
        references[:] = [target for _, target in test_pairs]
        test_set: Any = list(encode_pairs(tokenizer, test_pairs, model_args.max_length, cut=True))
        results |= trainer.predict(test_set, metric_key_prefix="test", num_beams=data.test_beams).metrics
        trainer.log_metrics("test", results)
    if trainer.is_world_process_zero():
        command = shlex.join(["python", *sys.argv])
        (out / "results.json").write_text(json.dumps({"command": command, **results}, indent=2), encoding="utf-8")
        if model_args.export:
            trainer.model.half().save_pretrained(model_args.export)
            tokenizer.save_pretrained(model_args.export)
    trainer.accelerator.end_training()


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)
