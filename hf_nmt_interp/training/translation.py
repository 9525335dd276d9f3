"""Maximum likelihood training of translators, with the papers' batches, schedule and checkpoint averaging."""

from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.data_loader import DataLoaderShard
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.batching import TokenBatches
from hf_nmt_interp.training.checkpoints import average_checkpoints, list_checkpoints
from hf_nmt_interp.training.losses import label_smoothed_cross_entropy, linear_cross_entropy


def noam_rate(step: int, scale: float, warmup: int, d_model: int) -> float:
    """Learning rate scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (voita2019, appendix B).

    >>> round(noam_rate(16000, scale=4, warmup=16000, d_model=512), 5)
    0.0014
    """
    step = max(step, 1)
    return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@dataclass
class TranslationConfig(Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with token budgets, the Noam schedule and checkpoint averaging."""

    tokens_per_batch: int = field(
        default=4096, metadata={"help": "Most padded tokens of a batch on each side; replaces the train batch size."}
    )
    noam_scale: float = field(
        default=0.0, metadata={"help": "Scale of the Noam schedule with `warmup_steps`; 0 keeps `lr_scheduler_type`."}
    )
    average_last: int = field(default=0, metadata={"help": "Average this many last checkpoints after training."})
    fused_loss: bool = field(
        default=True, metadata={"help": "Cross entropy without whole logits, where model and launcher allow it."}
    )

    def __post_init__(self):
        super().__post_init__()
        if self.tokens_per_batch < 1:
            raise InputError(f"tokens_per_batch: {self.tokens_per_batch} must be at least 1")
        if self.noam_scale < 0:
            raise InputError(f"noam_scale: {self.noam_scale} must be 0 (off) or positive")
        if self.noam_scale and self.warmup_steps < 1:
            raise InputError("warmup_steps: the Noam schedule needs a whole number of at least 1")
        if self.average_last and self.save_total_limit and self.save_total_limit < self.average_last:
            raise InputError(
                f"save_total_limit: {self.save_total_limit} is less than average_last={self.average_last}; raise it"
            )


class TranslationTrainer(Seq2SeqTrainer):
    """`Seq2SeqTrainer` over lists or streams of `{"input_ids", "labels"}`, batched by tokens."""

    args: TranslationConfig
    model: Any
    train_dataset: Any

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = True  # compute_loss divides by the number of target tokens of the whole step

    def get_train_dataloader(self) -> DataLoader:
        """Token batches; every process deals its own share, so nothing is left for accelerate to split."""
        batches = TokenBatches(
            self.train_dataset,
            self.data_collator,
            self.args.tokens_per_batch,
            seed=self.args.data_seed if self.args.data_seed is not None else self.args.seed,
            rank=self.args.process_index,
            world=self.args.world_size,
        )
        return DataLoaderShard(batches, batch_size=None, device=self.args.device)

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        """The Noam schedule where `noam_scale` is set."""
        if self.args.noam_scale and self.lr_scheduler is None:
            optimizer = optimizer or self.optimizer
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] = 1.0
            d_model, args = self.model.config.d_model, self.args
            self.lr_scheduler = LambdaLR(
                optimizer, lambda done: noam_rate(done + 1, args.noam_scale, int(args.warmup_steps), d_model)
            )
            return self.lr_scheduler
        return super().create_scheduler(num_training_steps, optimizer)

    def compute_loss(self, model, inputs: dict[str, Any], return_outputs=False, num_items_in_batch=None):
        """Smoothed cross entropy per target token; evaluation is without smoothing."""
        labels = inputs["labels"]
        smoothing = self.args.label_smoothing_factor if model.training else 0.0
        half = self.args.bf16 or self.args.fp16
        if self.args.fused_loss and not half and model.training and not return_outputs and _has_plain_head(model):
            inputs = {k: v for k, v in inputs.items() if k != "labels"}
            inputs.setdefault("decoder_input_ids", model.prepare_decoder_input_ids_from_labels(labels))
            hidden = model.model(**inputs, use_cache=False).last_hidden_state
            bias = model.final_logits_bias[0]
            loss, outputs = linear_cross_entropy(hidden, model.lm_head.weight, bias, labels, smoothing), None
        else:
            outputs = model(**inputs)
            loss = label_smoothed_cross_entropy(outputs.logits, labels, smoothing)
        if num_items_in_batch is None:
            loss = loss / labels.ne(-100).sum()
        else:  # gradients are averaged over processes, the count is of all of them
            loss = loss / num_items_in_batch * (self.args.world_size if model.training else 1)
        return (loss, outputs) if return_outputs else loss

    def train(self, *args, **kwargs):
        """Train; then average the last checkpoints if `average_last` says so."""
        result = super().train(*args, **kwargs)
        if self.args.average_last:
            average_checkpoints(self.model, list_checkpoints(str(self.args.output_dir))[-self.args.average_last :])
        return result


def _has_plain_head(model: torch.nn.Module) -> bool:
    """Whether logits are `lm_head(states) + final_logits_bias` and the model is not wrapped by a launcher."""
    return isinstance(model, PreTrainedModel) and hasattr(model, "final_logits_bias")
