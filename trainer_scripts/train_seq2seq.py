"""Train an LSTM or convolutional translator from scratch, or fine-tune one.

Examples:
    # as in snell2021, appendix A.8; add --set attention_mode=uniform for the probe of section 3.2
    python trainer_scripts/train_seq2seq.py --architecture lstm --output_dir runs/lstm --source_lang en \
        --target_lang de --train train.en train.de --valid valid.en valid.de --test test.en test.de \
        --tokens_per_batch 1024 --learning_rate 1e-3 --lr_scheduler_type constant --max_steps 20000 \
        --save_steps 1000 --save_total_limit 2 --eval_strategy steps --eval_steps 1000

    python trainer_scripts/train_seq2seq.py --architecture conv --set kernel_size=5 encoder_layers=6 ...

    accelerate launch --num_processes 2 trainer_scripts/train_seq2seq.py ...   (the same arguments)

Data are given as for `train_translation.py`. Run the same command again to resume from the last checkpoint in
--output_dir. For --set see the fields of `LuongSeq2SeqConfig` and `ConvSeq2SeqConfig`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_nmt_interp.training.arguments import ExportArguments, option
from hf_nmt_interp.training.launch import run_script, run_training, training_parser


@dataclass
class ModelArguments(ExportArguments):
    """The translator: from a checkpoint, or new."""

    architecture: str = option("lstm", "Architecture of a new model: lstm or conv.")
    set: list[str] = option([], "Fields of a new model's configuration, as NAME=VALUE.")
    vocab_size: int = option(8000, "Size of a new SentencePiece vocabulary for both languages.")


make_parser = partial(training_parser, ModelArguments, "translation.TranslationConfig")


def build(arguments: Any, data: Any, config: Any) -> tuple[Any, Any, Any]:
    from hf_nmt_interp.training.new_models import load_checkpoint, new_seq2seq, new_tokenizer
    from hf_nmt_interp.training.translation import TranslationTrainer

    if arguments.model:
        return TranslationTrainer, *load_checkpoint(arguments.model, data)
    tokenizer = new_tokenizer(data, config, arguments.vocab_size, arguments.max_length)
    return TranslationTrainer, new_seq2seq(arguments, tokenizer), tokenizer


main = partial(run_training, make_parser, build)

if __name__ == "__main__":
    run_script(main)
