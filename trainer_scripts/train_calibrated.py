"""Train a translator together with the masks that calibrate its cross-attention (lu2021).

Examples:
    # go on from a translator
    python trainer_scripts/train_calibrated.py --model demo:en-de --fusion gate --output_dir runs/gate \
        --train train.en train.de --test test.en test.de --alpha 0.1 --learning_rate 1e-4 \
        --lr_scheduler_type constant --max_steps 3000 --save_steps 500 --save_total_limit 2

    # from scratch as in the paper, with the sizes and the vocabulary of a baseline that train_translation.py made
    python trainer_scripts/train_calibrated.py --model runs/baseline --from_scratch --fusion anneal \
        --anneal_steps 2000 --output_dir runs/anneal ...   (the baseline's other arguments)

    accelerate launch --num_processes 2 trainer_scripts/train_calibrated.py ...   (the same arguments)

    # significance: all translations of the test, then
    sacrebleu test.de -i baseline.de anneal.de gate.de --paired-bs

Starts from any plain or calibrated Marian, BART, mBART or M2M100/NLLB checkpoint. Data are given as for
`train_translation.py`. The same command run again goes on from the last checkpoint in --output_dir. `loss` in the logs
is that of the translator; `perturbed_loss` should be above it, and `mask_mean` nearer to 1 with a larger --alpha.
"""

from dataclasses import dataclass, field
from typing import Any

from hf_nmt_interp.training.arguments import DataArguments, check_data
from hf_nmt_interp.training.job import Run
from hf_nmt_interp.training.launch import read_arguments, run_script


@dataclass
class ModelArguments:
    """The translator to calibrate."""

    model: str = field(default="demo:en-de", metadata={"help": "Checkpoint (folder, Hub id or demo:en-de)."})
    from_scratch: bool = field(
        default=False, metadata={"help": "Take sizes and vocabulary of --model and draw all weights anew."}
    )
    fusion: str | None = field(
        default=None, metadata={"help": "fixed, fixed_unnormalised, anneal or gate; that of --model, or gate."}
    )
    fusion_lambda: float | None = field(
        default=None, metadata={"help": "Weight of the calibrated weights in the fixed fusions; 0.1 in the paper."}
    )
    anneal_steps: float | None = field(
        default=None, metadata={"help": "Time constant of anneal, in steps; 1e5 in the paper, of 1.5e5 steps."}
    )
    max_length: int = field(
        default=128, metadata={"help": "Most tokens of a side; longer training pairs are dropped, test pairs cut."}
    )
    export: str | None = field(default=None, metadata={"help": "Folder for the final model in float16."})


def make_parser() -> Any:
    from transformers import HfArgumentParser

    from hf_nmt_interp.training.calibration import CalibrationConfig

    kinds: Any = (ModelArguments, DataArguments, CalibrationConfig)
    return HfArgumentParser(kinds, allow_abbrev=False)


def main() -> None:
    from hf_nmt_interp.training.launch import start_missing_processes

    start_missing_processes()
    model_args, data, config = read_arguments(make_parser())

    from transformers import set_seed

    from hf_nmt_interp.decoding.languages import set_languages
    from hf_nmt_interp.models.loading import load_tokenizer
    from hf_nmt_interp.training.calibration import CalibrationTrainer, load_calibrated

    set_seed(config.seed)
    check_data(data, config)
    given = {name: getattr(model_args, name) for name in ("fusion", "fusion_lambda", "anneal_steps")}
    settings = {name: value for name, value in given.items() if value is not None}
    model = load_calibrated(model_args.model, model_args.from_scratch, **settings)
    tokenizer = load_tokenizer(model_args.model)
    set_languages(model, tokenizer, *data.codes)
    base = None if model_args.from_scratch else model_args.model
    Run(CalibrationTrainer, model, tokenizer, data, config, model_args.max_length, base).complete(model_args.export)


if __name__ == "__main__":
    run_script(main)
