"""Joint training of a translator and the masks that calibrate its cross-attention (lu2021, section 3.3).

Definitions: docs/methods.md, Calibrated cross-attention.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, TrainerCallback

from hf_nmt_interp.decoding.batch import decoder_inputs
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models.calibrated import CalibratedAttentionMixin
from hf_nmt_interp.models.demo import find_model
from hf_nmt_interp.models.loading import class_of_family, load_config, load_model
from hf_nmt_interp.training.arguments import check_fields, option
from hf_nmt_interp.training.losses import PENALTIES, label_smoothed_cross_entropy, linear_cross_entropy, mask_loss
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer

logger = logging.getLogger(__name__)


def load_calibrated(name: str, from_scratch: bool = False, **settings: Any) -> Any:
    """A translator with calibrated cross-attention, in float32, from a plain or calibrated checkpoint.

    Args:
        name: folder, id on the Hub, or a bundled translator such as `demo:en-de`.
        from_scratch: use only the checkpoint's sizes, with new weights.
        settings: passed to `from_pretrained`, e.g. `fusion="anneal", anneal_steps=3000`.

    >>> type(load_calibrated("demo:en-de", fusion="gate")).__name__
    'CalibratedMarianMTModel'
    """
    kind = class_of_family(CalibratedAttentionMixin, "calibrated", name, load_config(name, "name"))
    place = find_model(name)
    try:
        config = kind.config_class.from_pretrained(place, dtype="float32", **settings)
    except ValueError as error:
        raise InputError("settings", None, str(error)) from error
    if not from_scratch:
        return load_model(kind, name, "name", config=config)
    model = kind(config)
    model.generation_config = GenerationConfig.from_pretrained(place)
    return model


@dataclass
class CalibrationConfig(TranslationConfig):
    """`TranslationConfig` with the penalty on the masks' distance from 1 and its weight.

    >>> CalibrationConfig("runs/calibrated", alpha=0.3, report_to=[]).penalty
    'step'
    """

    alpha: float = option(0.1, "Weight of ||1 - m||_2 in the mask network's loss; larger values perturb less.")
    penalty: str = option(
        "step", "Norm of 1 - m: averaged over steps (step), or over all masks (global), as released."
    )

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, "must not be negative", lambda x: x < 0, "alpha")
        check_choice("penalty", self.penalty, PENALTIES)
        if self.gradient_checkpointing:
            problem = "is not supported: it would train both losses on all parameters"
            raise InputError("gradient_checkpointing", None, problem, "turn it off")


class CalibrationTrainer(TranslationTrainer):
    """`TranslationTrainer` for a calibrated model.

    theta gets the gradient of the NMT loss under fused weights, theta_m (all W_Q and W_K) that of -(NMT loss under
    perturbed weights) + alpha ||1 - m||_2, m of the perturbed pass, both from one backward pass. `loss` in the logs is
    the NMT loss; `perturbed_loss`, `mask_distance` and `mask_mean` are logged too, as means over the first
    process's batches since the last log. Evaluation uses fused weights. `max_grad_norm` clips both together.

    Args:
        model: a calibrated model, e.g. of `load_calibrated`.
        args: a `CalibrationConfig`.
        more: further arguments of `Seq2SeqTrainer`.

    >>> import tempfile
    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_calibrated("demo:en-de"), hni.load_demo("en-de")[1]
    >>> pairs = [tokenizer("I like tea.", text_target="Ich mag Tee.")]
    >>> args = hni.CalibrationConfig(tempfile.mkdtemp(), max_steps=1, save_strategy="no", report_to=[])
    >>> trainer = hni.CalibrationTrainer(model, args, processing_class=tokenizer, train_dataset=pairs)
    >>> trainer.train().global_step  # doctest: +ELLIPSIS
    {'train_runtime': ...}
    1
    """

    uses_parts = True

    args: CalibrationConfig

    def __init__(self, model: Any, args: CalibrationConfig, **more: Any) -> None:
        if not hasattr(model, "two_passes"):
            raise InputError("model", None, f"{type(model).__name__} has no masks", "load it with load_calibrated")
        super().__init__(model=model, args=args, **more)
        if model.config.fusion == "fixed":
            problem = (
                "the softmax of eq. 8 is over weights that are already between 0 and 1, so results are nearly equal"
            )
            logger.warning("fusion='fixed': %s; the authors' code leaves it out: fusion='fixed_unnormalised'", problem)
        self.add_callback(CountSteps())
        self._seen: list[Tensor] = []  # perturbed loss, distance and mean mask of each batch since the last log

    def train(self, *args, **kwargs):
        """Train, and store alpha in the model's configuration."""
        self.model.config.mask_alpha = self.args.alpha
        return super().train(*args, **kwargs)

    def compute_loss(self, model, inputs: dict[str, Any], return_outputs=False, num_items_in_batch=None):
        """NMT loss per target token; its gradient is that of both losses, each on its own parameters."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = inputs["labels"]
        given = {"attention_mask": None, "decoder_input_ids": decoder_inputs(self.model, labels)} | inputs
        batch = {name: given[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
        fused, perturbed, masks, outputs = self._both_losses(model, labels, batch, return_outputs)
        distance = PENALTIES[self.args.penalty](masks, labels)
        self._seen.append(_summary(perturbed, distance, masks, inputs))
        second = mask_loss(perturbed, distance, self.args.alpha)
        # the second loss adds its gradient but not its value
        loss = self.per_token(fused + second - second.detach(), labels, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def _both_losses(self, model, labels: Tensor, batch: dict[str, Any], whole_logits: bool):
        """Sums of the cross entropy under fused and under perturbed weights, masks, and the model's output."""
        smoothing = self.args.label_smoothing_factor
        if self.args.fused_loss and not whole_logits and self._has_plain_head(model):
            passes, weight, bias = model.two_passes(**batch), model.lm_head.weight, model.final_logits_bias[0]
            fused = linear_cross_entropy(passes.fused, weight, bias, labels, smoothing)
            perturbed = linear_cross_entropy(passes.perturbed, weight.detach(), bias, labels, smoothing)
            return fused, perturbed, passes.masks, None
        outputs = model(**batch, perturbed=True)
        logits = outputs.logits, outputs.perturbed_logits
        fused, perturbed = (label_smoothed_cross_entropy(of, labels, smoothing) for of in logits)
        return fused, perturbed, outputs.perturbed_masks, outputs

    def log(self, logs: dict[str, Any], *args, **kwargs) -> None:
        """Also logs the statistics of the masks."""
        if "loss" in logs and self._seen:
            found = torch.stack(self._seen).mean(0).tolist()
            names = ("perturbed_loss", "mask_distance", "mask_mean")
            logs |= {name: round(value, 5) for name, value in zip(names, found, strict=True)}
            self._seen.clear()
        super().log(logs, *args, **kwargs)


@torch.no_grad()
def _summary(perturbed: Tensor, distance: Tensor, masks, inputs: dict[str, Any]) -> Tensor:
    """Perturbed loss and distance per step, and the mean mask over real source and target tokens, [3]."""
    steps = inputs["labels"] != -100
    real = inputs["attention_mask"] if "attention_mask" in inputs else torch.ones_like(inputs["input_ids"])
    pairs = steps[:, :, None] & (real != 0)[:, None]  # [B, T, S]
    mean = torch.stack([mask.mean(1)[pairs].mean() for mask in masks]).mean()
    return torch.stack([perturbed / steps.sum(), distance / steps.sum(), mean]).float()


class CountSteps(TrainerCallback):
    """Counts the steps in the model, before its checkpoint is written."""

    def on_step_end(self, args, state, control, **kwargs) -> None:
        getattr(kwargs["model"], "module", kwargs["model"]).count_step()
