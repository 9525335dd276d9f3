"""Train a translator together with the masks that calibrate its cross-attention (lu2021).

Examples:
    # start from a translator
    python trainer_scripts/train_calibrated.py --model demo:en-de --fusion gate --output_dir runs/gate \
        --train train.en train.de --test test.en test.de --alpha 0.1 --learning_rate 1e-4 \
        --lr_scheduler_type constant --max_steps 3000 --save_steps 500 --save_total_limit 2

    # from scratch as in the paper, with the sizes and vocabulary of a baseline trained by train_translation.py
    python trainer_scripts/train_calibrated.py --model runs/baseline --from_scratch --fusion anneal \
        --anneal_steps 2000 --output_dir runs/anneal ...   (the baseline's other arguments)

    accelerate launch --num_processes 2 trainer_scripts/train_calibrated.py ...   (the same arguments)

    # significance: translate the test set with each model, then
    sacrebleu test.de -i baseline.de anneal.de gate.de --paired-bs

Starts from any plain or calibrated Marian, BART, mBART or M2M100/NLLB checkpoint. Data are given as for
`train_translation.py`. Run the same command again to resume from the last checkpoint in --output_dir. `loss` in the
logs is that of the translator; `perturbed_loss` should be above it, and `mask_mean` closer to 1 with a larger --alpha.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_nmt_interp.training.arguments import ExportArguments, option
from hf_nmt_interp.training.launch import run_script, run_training, training_parser


@dataclass
class ModelArguments(ExportArguments):
    """The translator to calibrate."""

    model: str | None = option("demo:en-de", "Checkpoint (folder, Hub id or demo:en-de).")
    from_scratch: bool = option(False, "Use only the sizes and vocabulary of --model, with new weights.")
    fusion: str | None = option(None, "fixed, fixed_unnormalised, anneal or gate (default: that of --model, or gate).")
    fusion_lambda: float | None = option(None, "Share of calibrated weights in the fixed fusions; 0.1 in the paper.")
    anneal_steps: float | None = option(None, "Time constant of anneal, in steps; 1e5 of 1.5e5 steps in the paper.")

    @property
    def base(self) -> str | None:
        """Checkpoint whose weights the model has."""
        return None if self.from_scratch else self.model


make_parser = partial(training_parser, ModelArguments, "calibration.CalibrationConfig")


def build(arguments: Any, data: Any, config: Any) -> tuple[Any, Any, Any]:
    from hf_nmt_interp.training.calibration import CalibrationTrainer, load_calibrated
    from hf_nmt_interp.training.new_models import load_checkpoint

    given = {name: getattr(arguments, name) for name in ("fusion", "fusion_lambda", "anneal_steps")}
    settings = {name: value for name, value in given.items() if value is not None}
    load = partial(load_calibrated, from_scratch=arguments.from_scratch, **settings)
    return CalibrationTrainer, *load_checkpoint(arguments.model, data, load)


main = partial(run_training, make_parser, build)

if __name__ == "__main__":
    run_script(main)
