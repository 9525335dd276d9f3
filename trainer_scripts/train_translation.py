"""Train a Marian translator from scratch, or fine-tune any seq2seq checkpoint.

Examples:
    python trainer_scripts/train_translation.py --output_dir runs/en-de --source_lang en --target_lang de \
        --train train.en train.de --valid valid.en valid.de --test test.en test.de \
        --tokens_per_batch 4096 --noam_scale 2 --warmup_steps 4000 --max_steps 20000 --label_smoothing_factor 0.1 \
        --save_steps 1000 --save_total_limit 5 --average_last 5 --eval_strategy steps --eval_steps 1000

    accelerate launch --num_processes 2 trainer_scripts/train_translation.py ...   (the same arguments)

    # word dropout on the decoder's input (voita2021, section 5), starting from a translator
    python trainer_scripts/train_translation.py --model demo:en-de --output_dir runs/dropout \
        --train train.en train.de --target_word_dropout 0.1 --learning_rate 1e-5 --max_steps 300

Data: two line-parallel text files, or one JSONL file, or `--dataset NAME` for any dataset (Hub or local), with splits
named by --train, --valid and --test. Run the same command again to resume from the last complete checkpoint in
--output_dir; the result is the same as without the interruption.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_nmt_interp.training.arguments import ExportArguments, option
from hf_nmt_interp.training.launch import run_script, run_training, training_parser


@dataclass
class ModelArguments(ExportArguments):
    """The translator: from a checkpoint, or new with these sizes."""

    vocab_size: int = option(8000, "Size of a new SentencePiece vocabulary for both languages.")
    tokenizer: str | None = option(None, "Checkpoint whose tokenizer a new model uses, so both have the same tokens.")
    d_model: int = option(256, "Width of the model.")
    layers: int = option(4, "Number of encoder layers, and of decoder layers.")
    heads: str = option("8", "Attention heads, or the folder of a pruned model whose architecture to use.")
    ffn_dim: int = option(512, "Width of the feed-forward layers.")
    dropout: float = option(0.1, "Dropout on the residual branches.")


make_parser = partial(training_parser, ModelArguments, "translation.TranslationConfig")


def build(arguments: Any, data: Any, config: Any) -> tuple[Any, Any, Any]:
    from hf_nmt_interp.models.loading import load_tokenizer
    from hf_nmt_interp.training.new_models import load_checkpoint, new_marian, new_tokenizer
    from hf_nmt_interp.training.translation import TranslationTrainer

    if arguments.model:
        return TranslationTrainer, *load_checkpoint(arguments.model, data)
    if arguments.tokenizer:
        tokenizer = load_tokenizer(arguments.tokenizer, "--tokenizer")
    else:
        tokenizer = new_tokenizer(data, config, arguments.vocab_size, arguments.max_length)
    return TranslationTrainer, new_marian(arguments, tokenizer), tokenizer


main = partial(run_training, make_parser, build)

if __name__ == "__main__":
    run_script(main)
