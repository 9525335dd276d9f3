"""Train a head that aligns words on a frozen translator (Chen et al. 2020), without gold links.

Examples:
    # a bundled translator and its bundled reverse model
    python trainer_scripts/train_alignment.py --model demo:en-de --reverse_model demo:de-en --output_dir runs/aligned \
        --train train.en train.de --learning_rate 1e-3 --warmup_steps 50 --tokens_per_batch 2400 --max_steps 400 \
        --save_steps 100 --save_total_limit 1

    # without a reverse model, or with the links of another aligner (one line `0-0 1-2 ...` per pair)
    python trainer_scripts/train_alignment.py --model demo:en-de --teacher attention:layer=2 ...
    python trainer_scripts/train_alignment.py --model demo:en-de --links train.links ...

    # guided alignment (Garg et al. 2019): one head of the cross-attention, trained together with the translator
    python trainer_scripts/train_alignment.py --model demo:en-de --reverse_model demo:de-en --guided_layer 2 \
        --output_dir runs/guided --train train.en train.de --test test.en test.de --learning_rate 1e-4 ...

    accelerate launch --num_processes 2 trainer_scripts/train_alignment.py ...   (the same arguments)

Starts from any Marian, BART, mBART, M2M100/NLLB or T5 checkpoint, including gated, pruned or calibrated ones. Data are
given as for `train_translation.py`. Run the same command again to resume from the last checkpoint in --output_dir. The
result translates exactly as before, and `align`, `align_generation`, `translate --markup` and pages use its head.
Guided training changes the translator: `results.json` contains its scores on --test before and after.

To train the head again with the heads of a first run as teachers, give their folders as --model and
--reverse_model.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_nmt_interp.training.arguments import ExportArguments, option
from hf_nmt_interp.training.launch import run_script, run_training, training_parser


@dataclass
class ModelArguments(ExportArguments):
    """The translator that gets the head, and its teacher."""

    model: str | None = option("demo:en-de", "Checkpoint (folder, Hub id or demo:en-de).")
    alignment_layer: int | None = option(
        None, "Decoder layer to read (default: that of --model, the one below the teacher's attention, or the middle)."
    )
    alignment_heads: int | None = option(None, "Heads to average (default: those of --model).")
    reverse_model: str | None = option(None, "Translator for the other direction, whose links must agree.")
    links: str | None = option(None, "Pharaoh file with one line of links per training pair, instead of a teacher.")
    teacher: str | None = option(None, "Method used to align, as in `align` (default: its head or best attention).")
    reverse_teacher: str | None = option(None, "The same for the reverse model.")
    extraction: str = option("mutual", "How to extract links without a reverse model: mutual, shared, argmax ...")
    heuristic: str = option("grow-diag", "How to combine both directions: intersection, grow-diag, ...")
    least: float = option(0.2, "With a reverse model, drop links below this share of both words' scores.")
    test_before: bool = option(True, "In guided training, also score the test set before training.")


make_parser = partial(training_parser, ModelArguments, "alignment.AlignmentConfig")


def build(arguments: Any, data: Any, config: Any) -> tuple[Any, Any, Any]:
    from hf_nmt_interp.training.alignment import AlignmentTrainer, load_aligned
    from hf_nmt_interp.training.new_models import load_checkpoint
    from hf_nmt_interp.training.teacher import make_teacher

    given = {name: getattr(arguments, name) for name in ("alignment_layer", "alignment_heads")}
    settings = {name: value for name, value in given.items() if value is not None}
    load = partial(load_aligned, **settings) if config.guided_layer is None else None
    model, tokenizer = load_checkpoint(arguments.model, data, load)
    teacher, reverse = make_teacher(arguments, data, config, model, tokenizer)
    return partial(AlignmentTrainer, teacher=teacher, reverse=reverse), model, tokenizer


def finish(job: Any, arguments: Any) -> None:
    guided = job.trainer.args.guided_layer is not None
    before = job.test() if guided and arguments.test_before else {}
    job.complete(arguments.export, {f"before_{name}": value for name, value in before.items()})


main = partial(run_training, make_parser, build, finish)

if __name__ == "__main__":
    run_script(main)
