"""Maximum likelihood training of translators, with the papers' batches, schedule and checkpoint averaging."""

import logging
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from accelerate.data_loader import DataLoaderShard
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy, rotate_checkpoints

from hf_nmt_interp.decoding.precision import NarrowProducts
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.hub import Pushed, make_repo, push_folder
from hf_nmt_interp.training.arguments import check_fields, check_reporters, option
from hf_nmt_interp.training.batching import TokenBatches
from hf_nmt_interp.training.cards import hub_name, write_card
from hf_nmt_interp.training.checkpoints import (
    ARGUMENTS,
    STATE,
    UNFINISHED,
    average_checkpoints,
    list_checkpoints,
    write_checksums,
)
from hf_nmt_interp.training.fsdp import make_shardable
from hf_nmt_interp.training.launch import without_gpu_but_distributed
from hf_nmt_interp.training.losses import label_smoothed_cross_entropy, linear_cross_entropy

logger = logging.getLogger(__name__)


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

    tokens_per_batch: int = option(4096, "Maximum padded tokens per batch and side; replaces the train batch size.")
    noam_scale: float = option(0.0, "Scale of the Noam schedule with `warmup_steps`; 0 keeps `lr_scheduler_type`.")
    average_last: int = option(0, "Average this many last checkpoints after training; 0 keeps the last weights.")
    use_cache: bool = option(True, "Value of use_cache in the saved config; training itself never uses a cache.")
    fused_loss: bool = option(True, "Compute cross entropy without full logits, where model and launcher allow it.")
    bf16_products: bool = option(False, "Multiply matrices in bfloat16, and keep everything else in float32.")
    predict_with_generate: bool = option(True, "Translate in evaluation, to compute BLEU and chrF.")

    def __post_init__(self):
        self.use_cpu = self.use_cpu or without_gpu_but_distributed()
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.accelerator.is_available()
        super().__post_init__()
        check_fields(self, "must be at least 1", lambda x: x < 1, "tokens_per_batch")
        check_fields(self, "must be 0 (off) or positive", lambda x: x < 0, "noam_scale", "average_last")
        if self.noam_scale and self.warmup_steps < 1:
            raise InputError("warmup_steps", self.warmup_steps, "must be at least 1 step for the Noam schedule")
        check_fields(self, "must be at least 0 and below 1", lambda x: not 0 <= x < 1, "label_smoothing_factor")
        check_reporters(self.report_to or ())
        if self.hub_strategy not in (HubStrategy.END, HubStrategy.EVERY_SAVE):
            value, problem = HubStrategy(self.hub_strategy).value, "would upload pickled optimizer states"
            raise InputError("hub_strategy", value, problem, "use end or every_save")
        if self.hub_revision:
            raise InputError("hub_revision", self.hub_revision, "is not supported, only main", "leave it out")
        if self.bf16_products and (self.bf16 or self.fp16):
            problem = "cannot be combined with autocast"
            raise InputError("bf16_products", True, problem, "leave out bf16 and fp16")
        if self.average_last and self.save_strategy == "no":
            raise InputError("average_last", self.average_last, "needs checkpoints", "set save_strategy to steps")
        if self.average_last and self.save_total_limit and self.save_total_limit < self.average_last:
            problem = f"is less than average_last={self.average_last}"
            raise InputError("save_total_limit", self.save_total_limit, problem, "increase it")


class TranslationTrainer(Seq2SeqTrainer):
    """`Seq2SeqTrainer` over lists or streams of `{"input_ids", "labels"}`, batched by tokens.

    A collator with noise, such as `WordDropout`, is used in training only: evaluation uses the one in its `clean`.
    """

    args: TranslationConfig
    model: Any
    train_dataset: Any
    hub_model_id: Any
    uses_parts = False  # whether it calls parts of the model directly, not its forward pass
    draws = False  # whether each process needs its own random numbers; a checkpoint keeps them
    _is_writing = False
    _trained_at = 0.0  # time when `train` ended

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        users = [self, *self.callback_handler.callbacks]
        whole = [type(user).__name__ for user in users if getattr(user, "uses_parts", False)]
        whole += ["average_last"] * bool(self.args.average_last)
        if self.is_fsdp_enabled and whole:
            problem = f"FSDP, but {whole[0]} needs whole weights in each process"
            raise InputError("distributed_type", None, problem, "launch it with trainer_scripts/configs/ddp.yaml")
        self.train_collator = self.data_collator
        self.data_collator = getattr(self.data_collator, "clean", self.data_collator)
        self.model_accepts_loss_kwargs = True  # compute_loss divides by the number of target tokens of the whole step
        self.label_smoother = None  # done in compute_loss; the trainer's would also smooth the evaluation loss
        self._sentences = 0

    def _prepare_for_training(self, *args, **kwargs) -> Any:
        """Also prepares a translator for FSDP 2."""
        if self.accelerator.is_fsdp2:
            make_shardable(self.model, self.accelerator.state.fsdp_plugin)
        return super()._prepare_for_training(*args, **kwargs)

    def get_train_dataloader(self) -> DataLoader:
        """Token batches; every process takes its share, so accelerate does not split them."""
        args = self.args
        order: Any = {"seed": args.seed if args.data_seed is None else args.data_seed}
        order |= {"rank": args.process_index, "world": args.world_size}
        batches = TokenBatches(self.train_dataset, self.train_collator, args.tokens_per_batch, **order)
        return DataLoaderShard(batches, batch_size=None, device=args.device)

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        """The Noam schedule where `noam_scale` is set."""
        if self.args.noam_scale and self.lr_scheduler is None:
            optimizer = optimizer or self.optimizer
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] = 1.0
            d_model, args = self.model.config.get_text_config().hidden_size, self.args
            warmup = int(args.warmup_steps)
            self.lr_scheduler = LambdaLR(optimizer, lambda n: noam_rate(n + 1, args.noam_scale, warmup, d_model))
            self._created_lr_scheduler = True
            return self.lr_scheduler
        return super().create_scheduler(num_training_steps, optimizer)

    def training_step(self, model: Any, inputs: dict[str, Any], *args, **kwargs) -> Any:
        """Also counts sentences."""
        self._sentences += len(inputs["input_ids"])
        return super().training_step(model, inputs, *args, **kwargs)

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        """Counts sentences as samples: transformers assumes that every batch has the same number of them."""
        if "train_samples_per_second" in logs:
            count = torch.tensor(self._sentences, device=self.args.device)
            sentences = int(self.accelerator.reduce(count, "sum"))
            logs["train_samples_per_second"] = round(sentences / logs["train_runtime"], 3)
        super().log(logs, *args, **kwargs)

    def compute_loss(self, model, inputs: dict[str, Any], return_outputs=False, num_items_in_batch=None):
        """Smoothed cross entropy per target token; no smoothing in evaluation."""
        labels = inputs["labels"]
        if hasattr(self.model, "prepare_decoder_input_ids_from_labels"):  # otherwise the model also computes a loss
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
            inputs.setdefault("decoder_input_ids", self.model.prepare_decoder_input_ids_from_labels(labels))
        smoothing = self.args.label_smoothing_factor if model.training else 0.0
        if self.args.fused_loss and model.training and not return_outputs and self._has_plain_head(model):
            hidden = model.model(**inputs, use_cache=False).last_hidden_state
            bias = model.final_logits_bias[0]
            loss, outputs = linear_cross_entropy(hidden, model.lm_head.weight, bias, labels, smoothing), None
        else:
            outputs = model(**inputs, use_cache=False)
            loss = label_smoothed_cross_entropy(outputs.logits, labels, smoothing)
        loss = self.per_token(loss, labels, num_items_in_batch if model.training else None)
        return (loss, outputs) if return_outputs else loss

    def compute_loss_context_manager(self) -> ExitStack:
        """Adds narrow products in training if `bf16_products` is set."""
        stack = super().compute_loss_context_manager()
        if self.args.bf16_products and self.model.training:
            stack.enter_context(NarrowProducts(torch.bfloat16))
        return stack

    def per_token(self, total: torch.Tensor, labels: torch.Tensor, num_items_in_batch: Any) -> torch.Tensor:
        """Turn a sum over labelled positions into a mean, over the whole step if its number of labels is given."""
        if num_items_in_batch is None:
            return total / labels.ne(-100).sum()
        # gradients are averaged over processes; the count is over all of them, unless the user disables that
        processes = self.args.world_size if self.args.average_tokens_across_devices else 1
        return total / num_items_in_batch * processes

    def _has_plain_head(self, model: torch.nn.Module) -> bool:
        """Whether logits are `lm_head(states) + final_logits_bias` and no launcher wraps the model or its dtype."""
        plain = isinstance(model, PreTrainedModel) and hasattr(model, "final_logits_bias")
        return plain and self.accelerator.mixed_precision == "no" and not self.is_fsdp_enabled

    def train(self, *args, **kwargs):
        """Train; then average the last checkpoints if `average_last` is set."""
        if self.draws:
            set_seed(self.args.seed + self.args.process_index)
        self._sentences = 0
        result = super().train(*args, **kwargs)
        if self.args.average_last:
            self.accelerator.wait_for_everyone()  # the first process may still be writing the last one
            folders = list_checkpoints(str(self.args.output_dir))[-self.args.average_last :]
            if len(folders) < self.args.average_last:
                logger.warning(
                    "average_last is %d, but there are only %d checkpoints", self.args.average_last, len(folders)
                )
            average_checkpoints(self.model, folders)
        self._trained_at = time.time()
        return result

    def create_model_card(self, **about: Any) -> None:  # type: ignore[override]
        """Write `README.md` in the output folder; for `about` see `report.cards.model_card`."""
        if self.is_world_process_zero():
            write_card(self.args, str(self.args.output_dir), **self._known() | about)

    def _known(self) -> dict[str, Any]:
        """For the card: name, base model, scores of the last evaluation."""
        known: dict[str, Any] = {"name": self.repo_name, "base_model": hub_name(self.model.name_or_path or None)}
        for row in reversed(self.state.log_history):
            if scores := {f"test_{name}": row[f"eval_{name}"] for name in ("bleu", "chrf") if f"eval_{name}" in row}:
                return known | {"results": scores, "test_name": "validation"}
        return known

    def push_to_hub(self, commit_message="End of training", blocking=True, token=None, revision=None, **kwargs):
        """Save, and upload weights, configuration, tokenizer, code and card in one commit; private by default.

        A card in the folder is included, unless it is older than the training run or `kwargs` for `create_model_card`
        are given. The push is complete on return, even if not `blocking`, and goes to main.
        """
        if revision is not None:
            raise InputError("revision", revision, "is not supported, only main", "leave it out")
        folder = Path(str(self.args.output_dir))
        self.save_model(str(folder), _internal_call=True)
        if not self.is_world_process_zero():
            return None
        card = folder / "README.md"
        if kwargs or not card.exists() or card.stat().st_mtime < self._trained_at:
            self.create_model_card(**kwargs)
        return self.push_saved(folder, commit_message or "End of training", token)

    def push_saved(self, folder: str | Path, message: str = "End of training", token: str | None = None) -> Pushed:
        """Upload a saved model to the repository of the arguments, see `push_folder`."""
        return push_folder(folder, **self._repo(token), message=message)

    @property
    def repo_name(self) -> str | None:
        """Name on the Hub, if there is one."""
        return self.hub_model_id or self.args.hub_model_id

    def _repo(self, token: str | None = None) -> dict[str, Any]:
        """Name, visibility and token of the arguments' repository."""
        return {
            "repo_id": self.repo_name or Path(str(self.args.output_dir)).absolute().name,
            "private": self.args.hub_private_repo is not False,
            "token": token or self.args.hub_token,
        }

    def init_hf_repo(self, token: str | None = None) -> None:
        """Create the repository before training, so that a wrong token is reported early."""
        if self.is_world_process_zero():
            self.hub_model_id = make_repo(**self._repo(token))

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Upload the model of a checkpoint, without the optimizer; a failed push is only a warning."""
        is_due = self.is_world_process_zero() and self.args.hub_strategy != HubStrategy.END
        if not is_due or self._is_writing:  # called again when the checkpoint is complete
            return
        write_card(self.args, checkpoint_folder, **self._known())
        try:
            self.push_saved(checkpoint_folder, f"Training in progress, step {self.state.global_step}")
        except InputError as error:
            logger.warning("%s", error)

    def _run_epoch(self, *args, **kwargs) -> None:
        """Does not train one more step if a run is resumed at its last step."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Does not warn about tied weights and sinusoidal positions, which checkpoints do not store."""
        known = {*(self.model._keys_to_ignore_on_save or ()), *self.model.all_tied_weights_keys}
        missing = [key for key in load_result.missing_keys if key not in known]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Model, tokenizer and arguments; arguments are JSON without tokens, where transformers writes a pickle."""
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        if state_dict is not None:  # gathered, with a copy of a tied weight for each of its modules
            tied = self.model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        whole = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        whole.save_pretrained(folder, state_dict=state_dict)
        if not self.args.should_save:
            return
        tokenizer = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        (folder / ARGUMENTS).write_text(self.args.to_json_string(), encoding="utf-8")

    def _get_output_dir(self, trial: Any) -> str:
        """The output folder; while a checkpoint is written, the one for incomplete checkpoints."""
        folder = super()._get_output_dir(trial)
        return str(Path(folder, UNFINISHED)) if self._is_writing else folder

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Renames a checkpoint when it is complete, so that a killed run never leaves half of one."""
        folder = Path(self._get_output_dir(trial))
        unfinished, name = folder / UNFINISHED, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed run
        self.accelerator.wait_for_everyone()
        self._is_writing = True
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._is_writing = False
        self.accelerator.wait_for_everyone()
        best = folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
        if best.name == name or best.exists():
            self.state.best_model_checkpoint = str(best)
        if self.args.should_save:
            self.state.save_to_json(str(unfinished / name / STATE))  # which contains the path of the best one
            write_checksums(unfinished / name)
            shutil.rmtree(folder / name, ignore_errors=True)  # from the same step of an earlier run
            (unfinished / name).rename(folder / name)
            unfinished.rmdir()
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(folder / name))
        if self.args.should_save:
            rotate_checkpoints(str(folder), self.args.save_total_limit, self.state.best_model_checkpoint, True)

    @cached_property
    def _parameters(self) -> int:
        return self.model.num_parameters(exclude_embeddings=True)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Counts the parameters once, not at every step."""
        return 6 * inputs["input_ids"].numel() * self._parameters
