"""Train a Marian translator from scratch, or go on from any seq2seq checkpoint.

Examples:
    python trainer_scripts/train_translation.py --output_dir runs/en-de --source_lang en --target_lang de \
        --train train.en train.de --valid valid.en valid.de --test test.en test.de \
        --tokens_per_batch 4096 --noam_scale 2 --warmup_steps 4000 --max_steps 20000 --label_smoothing_factor 0.1 \
        --save_steps 1000 --save_total_limit 5 --average_last 5 --eval_strategy steps --eval_steps 1000

    accelerate launch --num_processes 2 trainer_scripts/train_translation.py ...   (the same arguments)

    # word dropout on what the decoder reads (voita2021, section 5), going on from a translator
    python trainer_scripts/train_translation.py --model demo:en-de --output_dir runs/dropout \
        --train train.en train.de --target_word_dropout 0.1 --learning_rate 1e-5 --max_steps 300

Data: two line-parallel text files, or one JSONL file, or `--dataset NAME` for any `datasets` set (Hub or local), whose
splits are then named by --train, --valid and --test. The same command run again goes on from the last complete
checkpoint in --output_dir, and gives what it would have given had it never been stopped.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.arguments import DataArguments, check_data
from hf_nmt_interp.training.job import Run
from hf_nmt_interp.training.launch import read_arguments, run_script
from hf_nmt_interp.training.new_models import load_checkpoint, make_model, new_tokenizer, special_ids


@dataclass
class ModelArguments:
    """The translator: from a checkpoint, or new with these sizes."""

    model: str | None = field(
        default=None, metadata={"help": "Checkpoint (folder, Hub id, demo:en-de) to go on from."}
    )
    vocab_size: int = field(default=8000, metadata={"help": "SentencePiece pieces of a new model, both languages."})
    tokenizer: str | None = field(
        default=None,
        metadata={"help": "Checkpoint whose tokenizer a new model gets, to be compared on the same tokens."},
    )
    d_model: int = field(default=256, metadata={"help": "Width."})
    layers: int = field(default=4, metadata={"help": "Layers of the encoder, and of the decoder."})
    heads: str = field(
        default="8",
        metadata={"help": "Attention heads; or a folder, of a pruned model, whose architecture the new model gets."},
    )
    ffn_dim: int = field(default=512, metadata={"help": "Width of the feed-forward layers."})
    dropout: float = field(default=0.1, metadata={"help": "Dropout on the residual branches."})
    max_length: int = field(
        default=128, metadata={"help": "Most tokens of a side; longer training pairs are dropped, test pairs cut."}
    )
    export: str | None = field(default=None, metadata={"help": "Folder for the final model in float16."})


def make_parser() -> Any:
    from transformers import HfArgumentParser

    from hf_nmt_interp.training.translation import TranslationConfig

    kinds: Any = (ModelArguments, DataArguments, TranslationConfig)
    return HfArgumentParser(kinds, allow_abbrev=False)


def load_model(arguments: ModelArguments, data: DataArguments, config: Any) -> tuple[Any, Any]:
    """The checkpoint to go on from, or a new model with a vocabulary made of the training pairs."""
    if arguments.model:
        return load_checkpoint(arguments.model, data)
    if arguments.tokenizer:
        from hf_nmt_interp.models.loading import load_tokenizer

        tokenizer = load_tokenizer(arguments.tokenizer, "--tokenizer")
    else:
        tokenizer = new_tokenizer(data, config, arguments.vocab_size, arguments.max_length)
    return new_model(arguments, tokenizer), tokenizer


def new_model(arguments: ModelArguments, tokenizer: Any) -> Any:
    """A Marian model with random weights."""
    make = dense_config if arguments.heads.isdecimal() else sparse_config
    make_config = partial(make, arguments, vocab_size=len(tokenizer), **special_ids(tokenizer))
    return make_model(make_config, tokenizer, arguments.max_length, "--d_model, --layers, --heads, --ffn_dim")


def dense_config(arguments: ModelArguments, **more: Any) -> Any:
    """Marian of the given sizes."""
    from transformers import MarianConfig

    sizes = {"layers": arguments.layers, "attention_heads": int(arguments.heads), "ffn_dim": arguments.ffn_dim}
    both: dict[str, Any] = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    return MarianConfig(
        d_model=arguments.d_model,
        **both,
        dropout=arguments.dropout,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=2 * arguments.max_length,
        **more,
    )


def sparse_config(arguments: ModelArguments, **more: Any) -> Any:
    """The architecture of a pruned model, to be trained from scratch (voita2019, table 2, right column)."""
    from hf_nmt_interp.models.gated import GatedMarianConfig
    from hf_nmt_interp.models.loading import load_config

    path = Path(arguments.heads) / "config.json"
    if not path.is_file():
        raise InputError(f"--heads: {arguments.heads!r} is neither a number nor a folder with a config.json")
    family = load_config(arguments.heads, "--heads").model_type.removeprefix("gated_")
    if family != "marian":
        raise InputError(f"--heads: {arguments.heads!r} is of the family {family!r}; new models are Marian's")
    return GatedMarianConfig.from_pretrained(arguments.heads, **more, gated_attentions=[], dtype="float32")


def main() -> None:
    from hf_nmt_interp.training.launch import start_missing_processes

    start_missing_processes()
    model_args, data, config = read_arguments(make_parser())

    from transformers import set_seed

    from hf_nmt_interp.training.translation import TranslationTrainer

    set_seed(config.seed)
    check_data(data, config)
    model, tokenizer = load_model(model_args, data, config)
    Run(TranslationTrainer, model, tokenizer, data, config, model_args.max_length, model_args.model).complete(
        model_args.export
    )


if __name__ == "__main__":
    run_script(main)
