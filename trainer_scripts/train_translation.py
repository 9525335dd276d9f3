"""Train a Marian translator from scratch, or go on from any seq2seq checkpoint.

Examples:
    python trainer_scripts/train_translation.py --output_dir runs/en-de --source_lang en --target_lang de \
        --train train.en train.de --valid valid.en valid.de --test test.en test.de \
        --tokens_per_batch 4096 --noam_scale 2 --warmup_steps 4000 --max_steps 20000 --label_smoothing_factor 0.1 \
        --save_steps 1000 --save_total_limit 5 --average_last 5 --eval_strategy steps --eval_steps 1000 \
        --predict_with_generate

    accelerate launch --num_processes 2 trainer_scripts/train_translation.py ...   (the same arguments)

Data: two line-parallel text files, or one JSONL file, or `--dataset NAME` for any `datasets` set (Hub or local), whose
splits are then named by --train, --valid and --test. The same command run again goes on from the last checkpoint in
--output_dir.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.translation import TranslationConfig


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
        default=128, metadata={"help": "Most tokens of a side; longer training pairs are dropped."}
    )
    export: str | None = field(default=None, metadata={"help": "Folder for the final model in float16."})


@dataclass
class DataArguments:
    """Parallel text."""

    source_lang: str = field(default="en", metadata={"help": "Source language code; with a set, its column."})
    target_lang: str = field(default="de", metadata={"help": "Target language code; with a set, its column."})
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


def make_parser() -> HfArgumentParser:
    return HfArgumentParser((ModelArguments, DataArguments, TranslationConfig))


def open_split(data: DataArguments, where: list[str], streaming: bool = False) -> Iterable[tuple[str, str]]:
    """Pairs of a split; starts over at each `iter()`."""
    from hf_nmt_interp.text.corpus import read_dataset, read_pairs
    from hf_nmt_interp.training.data import Restartable

    fields: dict[str, Any] = {"source": data.source_lang, "target": data.target_lang}
    if data.dataset is None:
        return Restartable(partial(read_pairs, *where, **fields))
    if len(where) != 1:
        raise InputError(f"--train, --valid, --test: with --dataset give the name of one split, got {where}")
    options: dict[str, Any] = {"config": data.dataset_config, "split": where[0], "streaming": streaming}
    return Restartable(partial(read_dataset, data.dataset, **fields, **options))


def load_model(arguments: ModelArguments, data: DataArguments, config: TranslationConfig, pairs) -> tuple[Any, Any]:
    """The checkpoint to go on from, or a new model with a vocabulary made of the training pairs."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianTokenizer

    from hf_nmt_interp.training.vocabulary import train_marian_tokenizer

    if arguments.model:
        return AutoModelForSeq2SeqLM.from_pretrained(arguments.model), AutoTokenizer.from_pretrained(arguments.model)
    folder = Path(config.output_dir) / "tokenizer"
    with config.main_process_first(desc="vocabulary"):
        if not (folder / "tokenizer_config.json").is_file():
            sentences = (side for pair in islice(pairs, data.vocabulary_pairs) for side in pair)
            languages = data.source_lang, data.target_lang
            train_marian_tokenizer(sentences, folder, arguments.vocab_size, *languages, arguments.max_length)
    tokenizer = MarianTokenizer.from_pretrained(folder)
    return new_model(arguments, tokenizer), tokenizer


def new_model(arguments: ModelArguments, tokenizer: Any) -> Any:
    """A MarianMT model with random weights."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    sizes = {"layers": arguments.layers, "attention_heads": arguments.heads, "ffn_dim": arguments.ffn_dim}
    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
    }
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=arguments.d_model,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
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

    ids = np.where(prediction.predictions < 0, tokenizer.pad_token_id, prediction.predictions)
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    scores = sacrebleu.corpus_bleu(texts, [references]), sacrebleu.corpus_chrf(texts, [references])
    return {"bleu": scores[0].score, "chrf": scores[1].score}


def main() -> None:
    arguments: tuple[Any, ...] = make_parser().parse_args_into_dataclasses()
    model_args, data, config = arguments

    from transformers import set_seed
    from transformers.trainer_utils import get_last_checkpoint

    from hf_nmt_interp.training.batching import pad_batch
    from hf_nmt_interp.training.callbacks import Stopwatch
    from hf_nmt_interp.training.data import Restartable, encode_pairs
    from hf_nmt_interp.training.translation import TranslationTrainer

    set_seed(config.seed)
    train_pairs = open_split(data, data.train, data.streaming)
    model, tokenizer = load_model(model_args, data, config, train_pairs)
    encode = partial(encode_pairs, tokenizer, train_pairs, model_args.max_length)
    valid_pairs = list(islice(open_split(data, data.valid), data.max_valid)) if data.valid else []
    references = [target for _, target in valid_pairs]
    stopwatch = Stopwatch()
    trainer: Any = TranslationTrainer(
        model=model,
        args=config,
        train_dataset=Restartable(encode) if data.streaming else list(encode()),
        eval_dataset=list(encode_pairs(tokenizer, valid_pairs)) or None,
        data_collator=partial(pad_batch, pad_id=tokenizer.pad_token_id),
        processing_class=tokenizer,
        compute_metrics=partial(bleu_and_chrf, tokenizer, references) if config.predict_with_generate else None,
        callbacks=[stopwatch],
    )
    out = Path(config.output_dir)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(out)) if out.is_dir() else None)
    trainer.save_model()
    results = {"train_seconds": stopwatch.seconds, "train_steps": trainer.state.global_step}
    if data.test:
        test_pairs = list(open_split(data, data.test))
        references[:] = [target for _, target in test_pairs]
        test_set: Any = list(encode_pairs(tokenizer, test_pairs))
        results |= trainer.predict(test_set, metric_key_prefix="test", num_beams=data.test_beams).metrics
        trainer.log_metrics("test", results)
    if trainer.is_world_process_zero():
        command = " ".join(["python", *sys.argv])
        (out / "results.json").write_text(json.dumps({"command": command, **results}, indent=2), encoding="utf-8")
        if model_args.export:
            trainer.model.half().save_pretrained(model_args.export)
            tokenizer.save_pretrained(model_args.export)


if __name__ == "__main__":
    main()
