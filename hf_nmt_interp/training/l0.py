"""Prunes attention heads with Hard Concrete gates: cross entropy + lambda L_C (voita2019, section 6).

Definitions: docs/methods.md, Gated heads.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import GatedHeadsMixin
from hf_nmt_interp.models.gated.configuration_gated import KINDS, kinds_of
from hf_nmt_interp.models.loading import class_of_family, load_config, load_model
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.training.arguments import check_fields, option
from hf_nmt_interp.training.checkpoints import HISTORY
from hf_nmt_interp.training.losses import l0_loss, ramp
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer


def load_gated(name: str, gated_attentions: str | list[str] = "all", **settings: Any) -> Any:
    """A translator with gates on its heads, in float32, from a plain, gated or pruned checkpoint.

    Args:
        name: folder, id on the Hub, or a bundled translator such as `demo:en-de`.
        gated_attentions: kinds of attention to which open gates are added: "encoder", "decoder", "cross" or "all"; an
            empty list adds none.
        settings: passed to `from_pretrained`, e.g. `gate_init=2.0`.

    >>> [len(heads) for heads in load_gated("demo:en-de").kept_heads()["encoder"]]
    [8, 8, 8, 8]
    """
    config = load_config(name, "name")
    if not hasattr(config, "gated_attentions"):  # a plain one
        settings |= {"gated_attentions": []}
    model = load_model(class_of_family(GatedHeadsMixin, "gated", name, config), name, "name", **settings)
    model.add_gates(gated_attentions)
    return model


def gate_parameters(model: Any) -> list[Any]:
    """`log_alpha` of every gate of a gated model."""
    return [gate.log_alpha for gate in chain(*model.gates().values()) if gate is not None]


@dataclass
class L0Config(TranslationConfig):
    """`TranslationConfig` with the weight of L_C and the parts to train.

    >>> L0Config("runs/l0", penalty=0.01, report_to=[]).penalty
    0.01
    """

    penalty: float = option(0.005, "Weight lambda of L_C, the expected open heads; a larger one closes more heads.")
    penalty_warmup_steps: int = option(50, "Steps over which lambda grows from 0.")
    gate_learning_rate: float = option(0.05, "Learning rate of the gates; other weights use `learning_rate`.")
    gated_attentions: list[str] = option(["all"], "Kinds with gates: encoder, decoder, cross, or all.")
    freeze: str | None = option(None, "`decoder` trains only the encoder and its gates.")

    def __post_init__(self):
        super().__post_init__()
        names = "penalty", "penalty_warmup_steps", "gate_learning_rate"
        check_fields(self, "must not be negative", lambda x: x < 0, *names)
        try:
            self.gated_attentions = kinds_of(self.gated_attentions)
        except ValueError as error:
            problem = f"has values other than all, {', '.join(KINDS)}"
            raise InputError("gated_attentions", self.gated_attentions, problem) from error
        if self.freeze not in (None, "decoder"):
            raise InputError("freeze", self.freeze, "is not supported", "use decoder, or leave it out")


class L0Trainer(TranslationTrainer):
    """`TranslationTrainer` for a gated model.

    Each process draws its own gates for each batch, from `seed` + its rank, also within an accumulated step;
    gradients are averaged. L_C counts once per step, however many batches and processes there are. Evaluation
    uses gates of 0 and 1, without L_C. Open heads are logged, and written to `gates.csv` in the output folder.

    Args:
        model: a gated model, e.g. of `load_gated`; gates for `gated_attentions` are added.
        args: an `L0Config`.
        more: further arguments of `Seq2SeqTrainer`.

    >>> import tempfile
    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_gated("demo:en-de"), hni.load_demo("en-de")[1]
    >>> pairs = [tokenizer("I like tea.", text_target="Ich mag Tee.")]
    >>> args = hni.L0Config(tempfile.mkdtemp(), max_steps=1, save_strategy="no", report_to=[])
    >>> trainer = hni.L0Trainer(model, args, processing_class=tokenizer, train_dataset=pairs)
    >>> trainer.train().global_step  # doctest: +ELLIPSIS
    {'train_runtime': ...}
    1
    """

    args: L0Config
    uses_parts = True
    draws = True

    def __init__(self, model: Any, args: L0Config, **more: Any) -> None:
        if not hasattr(model, "l0_penalty"):
            raise InputError("model", None, f"{type(model).__name__} has no gates", "load it with load_gated")
        if extra := [kind for kind in kinds_of(model.config.gated_attentions) if kind not in args.gated_attentions]:
            problem = f"is incomplete: the model also has gates on {', '.join(extra)}"
            raise InputError("gated_attentions", args.gated_attentions, problem, "name them too")
        model.add_gates(args.gated_attentions)
        if args.freeze:
            freeze_decoder(model)
        super().__init__(model=model, args=args, **more)
        self.add_callback(GateHistory())

    def create_optimizer(self, model=None):
        """The usual optimizer, with a separate group for the gates: another rate, no weight decay."""
        if self.optimizer is None:
            optimizer: Any = super().create_optimizer(model)
            gates = gate_parameters(self.model)
            ids = set(map(id, gates))
            for group in optimizer.param_groups:
                group["params"] = [p for p in group["params"] if id(p) not in ids]
            optimizer.add_param_group({"params": gates, "lr": self.args.gate_learning_rate, "weight_decay": 0.0})
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        """The usual scheduler; the Noam schedule, which has a single rate, is scaled for the gates."""
        is_new = self.lr_scheduler is None
        scheduler: Any = super().create_scheduler(num_training_steps, optimizer)
        if is_new and self.args.noam_scale:
            ratio = self.args.gate_learning_rate / self.args.learning_rate
            gates = scheduler.optimizer.param_groups[-1]
            gates["lr"], gates["initial_lr"], scheduler.base_lrs[-1] = gates["lr"] * ratio, ratio, ratio
        return scheduler

    def penalty_weight(self, step: int) -> float:
        """Lambda at a step, counted from 1."""
        return self.args.penalty * ramp(step, self.args.penalty_warmup_steps)

    def compute_loss(self, model, inputs: dict[str, Any], return_outputs=False, num_items_in_batch=None):
        """Cross entropy per target token + lambda L_C; in evaluation, cross entropy only."""
        found = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if not model.training:
            return found
        # with a token count, the losses of a step's batches are summed, otherwise the trainer averages them
        batches = 1 if num_items_in_batch is None else self.current_gradient_accumulation_steps
        loss, *outputs = found if return_outputs else (found,)
        weight = self.penalty_weight(self.state.global_step + 1) / batches
        loss = l0_loss(loss, self.model.l0_penalty(), weight)
        return (loss, *outputs) if return_outputs else loss

    def log(self, logs: dict[str, Any], *args, **kwargs) -> None:
        """Also logs the heads of each layer: expected open heads, and those kept if training ended here."""
        if "loss" in logs:
            logs |= {"penalty_weight": self.penalty_weight(self.state.global_step), **count_heads(self.model)}
        super().log(logs, *args, **kwargs)


def freeze_decoder(model: Any) -> None:
    """Exclude the decoder from training, with the output projection and embeddings it shares, but not its gates."""
    gates = set(map(id, gate_parameters(model)))
    for parameter in chain(model.get_decoder().parameters(), model.get_output_embeddings().parameters()):
        parameter.requires_grad_(id(parameter) in gates)


def count_heads(model: Any) -> dict[str, float]:
    """Expected and kept heads of each kind and layer for a log, e.g. {"expected_heads/encoder_0": 3.1, ...}."""
    found: dict[str, float] = {}
    kept = {kind: [len(heads) for heads in layers] for kind, layers in model.kept_heads().items()}
    counts: dict[str, dict[str, Any]] = {"expected_heads": model.expected_heads(), "kept_heads": kept}
    for name, by_kind in counts.items():
        for kind in model.config.gated_attentions:
            found[f"{name}/{kind}"] = round(sum(by_kind[kind]), 3)
            found |= {f"{name}/{kind}_{layer}": round(n, 3) for layer, n in enumerate(by_kind[kind])}
    return found


class GateHistory(TrainerCallback):
    """Writes every gate at every log to `gates.csv`: step, kind, layer, head, log_alpha and open = 1 - P(g = 0).

    A resumed run continues the file from the step of its checkpoint. Logs before training are not written.
    """

    _last = math.inf

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        if not state.is_world_process_zero:
            return
        self._path = Path(args.output_dir) / HISTORY
        there = self._path.read_text() if state.global_step and self._path.exists() else ""
        lines = there.splitlines(keepends=True)[1:]
        # a killed run may have left a truncated last line, even in its step number
        kept = [line for line in lines if line.endswith("\n") and _step_of(line) <= state.global_step]
        self._last = _step_of(kept[-1]) if kept else -1
        write_whole(self._path, "".join(["step,kind,layer,head,log_alpha,open\n", *kept]))
        if not state.global_step:
            self.on_log(args, state, control, **kwargs)

    def on_log(self, args, state, control, **kwargs) -> None:
        if state.is_world_process_zero and state.global_step > self._last:
            self._last = state.global_step
            rows = [[state.global_step, *row] for row in _gate_rows(kwargs["model"])]
            with self._path.open("a", newline="\n") as file:
                file.writelines(",".join(map(str, row)) + "\n" for row in rows)

    on_train_end = on_log


def _step_of(line: str) -> int:
    return int(line.partition(",")[0])


def _gate_rows(model: Any) -> Iterator[tuple[str, int, int, float, float]]:
    model = getattr(model, "module", model)  # a launcher's wrapper
    for kind, attentions in model.attentions().items():
        for layer, (attention, gate) in enumerate(zip(attentions, model.gates()[kind], strict=True)):
            if gate is not None:
                values = zip(attention.kept_heads, gate.log_alpha.tolist(), (1 - gate.p_zero()).tolist(), strict=True)
                for head, log_alpha, is_open in values:
                    yield kind, layer, head, round(log_alpha, 5), round(is_open, 6)
