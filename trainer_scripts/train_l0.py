"""Prune attention heads of a translator with L0 gates (voita2019, section 6), and test the pruned model.

Examples:
    # the encoder's heads, as in section 6.2, with a frozen decoder
    python trainer_scripts/train_l0.py --model demo:en-de --output_dir runs/l0-encoder --train train.en train.de \
        --test test.en test.de --gated_attentions encoder --freeze decoder --penalty 0.005 --learning_rate 5e-4 \
        --warmup_steps 50 --tokens_per_batch 800 --max_steps 600 --save_steps 100 --save_total_limit 1

    # heads of all kinds, as in section 6.3
    python trainer_scripts/train_l0.py --model demo:en-de --output_dir runs/l0-all --train train.en train.de \
        --test test.en test.de --gated_attentions all --penalty 0.005 --learning_rate 5e-4 --max_steps 600

    accelerate launch --num_processes 2 trainer_scripts/train_l0.py ...   (the same arguments)

    # the same sparse model from scratch (table 2, right column)
    python trainer_scripts/train_translation.py --heads runs/l0-all/pruned ...

Starts from any plain, gated or pruned Marian, BART, mBART, M2M100/NLLB or T5 checkpoint. Data are given as for
`train_translation.py`. Run the same command again to resume from the last checkpoint in --output_dir. It writes
`gated/` and `pruned/`, which `from_pretrained` loads, `gates.csv` with every gate over time, and `results.json` with
heads, parameters and scores before and after pruning; the gated model with gates rounded to 0 and 1 translates exactly
like the pruned one.

A larger --penalty closes more heads. In runs like the first command above (docs/pruning.md), 17, 5 and 2 of the 32
encoder heads of the bundled translator are left with penalties of 0.002, 0.005 and 0.02. A gate moves by at most about
--gate_learning_rate per step, and has to move from --gate_init to below 0 to close its head; train several times as
long as that takes, so the weights can adapt to the remaining heads.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_nmt_interp.training.arguments import StartArguments, option
from hf_nmt_interp.training.launch import run_script, run_training, training_parser


@dataclass
class ModelArguments(StartArguments):
    """The translator to prune."""

    model: str | None = option("demo:en-de", "Checkpoint (folder, Hub id or demo:en-de).")
    gate_init: float = option(2.0, "Initial log_alpha of new gates, open above 0; gates closer to 0 close sooner.")
    test_before: bool = option(True, "Also score the test set before training.")


make_parser = partial(training_parser, ModelArguments, "l0.L0Config")


def build(arguments: Any, data: Any, config: Any) -> tuple[Any, Any, Any]:
    from hf_nmt_interp.training.l0 import L0Trainer, load_gated
    from hf_nmt_interp.training.new_models import load_checkpoint

    load = partial(load_gated, gated_attentions=[], gate_init=arguments.gate_init)  # the trainer adds the gates
    return L0Trainer, *load_checkpoint(arguments.model, data, load)


def finish(job: Any, arguments: Any) -> None:
    from hf_nmt_interp.training.pruning import train_and_prune

    train_and_prune(job, arguments.test_before)


main = partial(run_training, make_parser, build, finish)

if __name__ == "__main__":
    run_script(main)
