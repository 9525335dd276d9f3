"""Fine-tune a translator by minimum risk training (voita2021, section 5 and appendix B), and test it.

Examples:
    python trainer_scripts/train_mrt.py --model demo:en-de --output_dir runs/mrt --train train.en train.de \
        --test test.en test.de --candidates 50 --alpha 0.005 --learning_rate 1e-5 --tokens_per_batch 400 \
        --lr_scheduler_type constant --max_steps 300 --save_steps 50 --save_total_limit 2 --logging_steps 5

    accelerate launch --num_processes 2 trainer_scripts/train_mrt.py ...   (the same arguments)

    # beside it the same number of updates by train_translation.py, without and with --target_word_dropout 0.1;
    # what they do to source contributions
    hf-nmt-interp contributions --input test.en --target-file test.de --prefix random model \
        --compare mle=runs/mle dropout=runs/dropout mrt=runs/mrt --figure objectives.svg

Starts from any seq2seq checkpoint, best a converged one. Data are given as for `train_translation.py`; the same
command run again goes on from the last checkpoint in --output_dir. --tokens_per_batch counts sources and references:
each has --candidates times as many candidate tokens, of which --candidate_tokens are scored at a time.
The log tells how many candidates are unique, their risk, how P~ is spread, and how long they are against references.
At the end there are the model, and `results.json` with the scores before and after.
"""

from dataclasses import dataclass, field
from typing import Any

from hf_nmt_interp.training.arguments import DataArguments, check_data
from hf_nmt_interp.training.job import Run
from hf_nmt_interp.training.launch import read_arguments, run_script
from hf_nmt_interp.training.new_models import load_checkpoint


@dataclass
class ModelArguments:
    """The translator to go on from."""

    model: str = field(default="demo:en-de", metadata={"help": "Checkpoint (folder, Hub id or demo:en-de)."})
    max_length: int = field(
        default=128, metadata={"help": "Most tokens of a side; longer training pairs are dropped, test pairs cut."}
    )
    test_before: bool = field(
        default=True, metadata={"help": "Score the test with the translator as it comes, too, before the training."}
    )
    export: str | None = field(default=None, metadata={"help": "Folder for the final model in float16."})


def make_parser() -> Any:
    from transformers import HfArgumentParser

    from hf_nmt_interp.training.mrt import MRTConfig

    kinds: Any = (ModelArguments, DataArguments, MRTConfig)
    return HfArgumentParser(kinds, allow_abbrev=False)


def main() -> None:
    from hf_nmt_interp.training.launch import start_missing_processes

    start_missing_processes()
    model_args, data, config = read_arguments(make_parser())

    from transformers import set_seed

    from hf_nmt_interp.training.mrt import MRTTrainer

    set_seed(config.seed)
    check_data(data, config)
    model, tokenizer = load_checkpoint(model_args.model, data)
    run = Run(MRTTrainer, model, tokenizer, data, config, model_args.max_length, model_args.model)
    before = run.test() if data.test and model_args.test_before else {}
    run.complete(model_args.export, {"before": before} if before else {})


if __name__ == "__main__":
    run_script(main)
