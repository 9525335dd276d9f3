"""Fine-tune a translator with minimum risk training (voita2021, section 5 and appendix B), and test it.

Examples:
    python trainer_scripts/train_mrt.py --model demo:en-de --output_dir runs/mrt --train train.en train.de \
        --test test.en test.de --candidates 50 --alpha 0.005 --learning_rate 1e-5 --tokens_per_batch 400 \
        --lr_scheduler_type constant --max_steps 300 --save_steps 50 --save_total_limit 2 --logging_steps 5

    accelerate launch --num_processes 2 trainer_scripts/train_mrt.py ...   (the same arguments)

    # compare source contributions with those of train_translation.py after the same number of updates,
    # without and with --target_word_dropout 0.1
    hf-nmt-interp contributions --input test.en --target-file test.de --prefix random model \
        --compare mle=runs/mle dropout=runs/dropout mrt=runs/mrt --figure objectives.svg

Starts from any seq2seq checkpoint, ideally a converged one. Data are given as for `train_translation.py`; run the same
command again to resume from the last checkpoint in --output_dir. --tokens_per_batch counts sources and references:
there are about --candidates times as many candidate tokens, of which --candidate_tokens are scored at a time.
The log shows how many candidates are unique, their risk, the entropy of P~, and their length relative to references.
At the end, the script saves the model, and `results.json` with the scores before and after.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_nmt_interp.training.arguments import ExportArguments, option
from hf_nmt_interp.training.launch import run_script, run_training, training_parser


@dataclass
class ModelArguments(ExportArguments):
    """The translator to start from."""

    model: str | None = option("demo:en-de", "Checkpoint (folder, Hub id or demo:en-de).")
    test_before: bool = option(True, "Also score the test set before training.")


make_parser = partial(training_parser, ModelArguments, "mrt.MRTConfig")


def build(arguments: Any, data: Any, config: Any) -> tuple[Any, Any, Any]:
    from hf_nmt_interp.training.mrt import MRTTrainer
    from hf_nmt_interp.training.new_models import load_checkpoint

    return MRTTrainer, *load_checkpoint(arguments.model, data)


def finish(job: Any, arguments: Any) -> None:
    before = job.test() if arguments.test_before else {}
    job.complete(arguments.export, {"before": before} if before else {})


main = partial(run_training, make_parser, build, finish)

if __name__ == "__main__":
    run_script(main)
