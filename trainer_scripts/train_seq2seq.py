"""Train an LSTM or a convolutional translator, or go on from one.

Examples:
    # as in snell2021, appendix A.8; with --set attention_mode=uniform for the probe of section 3.2
    python trainer_scripts/train_seq2seq.py --architecture lstm --output_dir runs/lstm --source_lang en \
        --target_lang de --train train.en train.de --valid valid.en valid.de --test test.en test.de \
        --tokens_per_batch 1024 --learning_rate 1e-3 --lr_scheduler_type constant --max_steps 20000 \
        --save_steps 1000 --save_total_limit 2 --eval_strategy steps --eval_steps 1000

    python trainer_scripts/train_seq2seq.py --architecture conv --set kernel_size=5 encoder_layers=6 ...

    accelerate launch --num_processes 2 trainer_scripts/train_seq2seq.py ...   (the same arguments)

Data are given as for `train_translation.py`, and the same command run again goes on from the last checkpoint in
--output_dir. What --set can set is described at `LuongSeq2SeqConfig` and `ConvSeq2SeqConfig`.
"""

from dataclasses import dataclass, field
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.arguments import DataArguments, check_data
from hf_nmt_interp.training.job import Run
from hf_nmt_interp.training.launch import read_arguments, run_script
from hf_nmt_interp.training.new_models import load_checkpoint, make_model, new_tokenizer, read_settings, special_ids


@dataclass
class ModelArguments:
    """The translator: from a checkpoint, or new."""

    model: str | None = field(default=None, metadata={"help": "Checkpoint to go on from."})
    architecture: str = field(default="lstm", metadata={"help": "Of a new model: lstm or conv."})
    set: list[str] = field(
        default_factory=list, metadata={"help": "Fields of a new model's configuration, as NAME=VALUE."}
    )
    vocab_size: int = field(default=8000, metadata={"help": "SentencePiece pieces of a new model, both languages."})
    max_length: int = field(
        default=128, metadata={"help": "Most tokens of a side; longer training pairs are dropped, test pairs cut."}
    )
    export: str | None = field(default=None, metadata={"help": "Folder for the final model in float16."})


def make_parser() -> Any:
    from transformers import HfArgumentParser

    from hf_nmt_interp.training.translation import TranslationConfig

    kinds: Any = (ModelArguments, DataArguments, TranslationConfig)
    return HfArgumentParser(kinds, allow_abbrev=False)


def new_model(arguments: ModelArguments, tokenizer: Any) -> Any:
    """An LSTM or convolutional model with random weights."""
    from hf_nmt_interp.models.conv import ConvSeq2SeqConfig
    from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig

    kinds: dict[str, Any] = {"lstm": LuongSeq2SeqConfig, "conv": ConvSeq2SeqConfig}
    if arguments.architecture not in kinds:
        raise InputError(f"--architecture: {arguments.architecture!r} is not one of {', '.join(kinds)}")
    kind = kinds[arguments.architecture]
    settings = special_ids(tokenizer) | read_settings(arguments.set, kind)
    return make_model(lambda: kind(vocab_size=len(tokenizer), **settings), tokenizer, arguments.max_length, "--set")


def main() -> None:
    from hf_nmt_interp.training.launch import start_missing_processes

    start_missing_processes()
    model_args, data, config = read_arguments(make_parser())

    from transformers import set_seed

    from hf_nmt_interp.training.translation import TranslationTrainer

    set_seed(config.seed)
    check_data(data, config)
    if model_args.model:
        model, tokenizer = load_checkpoint(model_args.model, data)
    else:
        tokenizer = new_tokenizer(data, config, model_args.vocab_size, model_args.max_length)
        model = new_model(model_args, tokenizer)
    Run(TranslationTrainer, model, tokenizer, data, config, model_args.max_length, model_args.model).complete(
        model_args.export
    )


if __name__ == "__main__":
    run_script(main)
