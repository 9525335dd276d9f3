"""Trains an alignment head on a frozen translator (Chen et al. 2020), or a cross-attention head with the translator.

Definitions: docs/methods.md, Alignment head.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_nmt_interp.attribution.attention import attention_weights
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.decoding.batch import decoder_inputs
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models.aligned import AlignmentHeadMixin
from hf_nmt_interp.models.families import Attention, any_parts
from hf_nmt_interp.models.loading import class_of_family, load_config, load_model
from hf_nmt_interp.text.corpus import Example
from hf_nmt_interp.text.pharaoh import read_links, write_links
from hf_nmt_interp.training.arguments import check_fields, option
from hf_nmt_interp.training.checkpoints import LINKS, list_checkpoints
from hf_nmt_interp.training.data import Restartable
from hf_nmt_interp.training.losses import LINK_LOSSES, agreement_loss
from hf_nmt_interp.training.teacher import Teacher, teach, with_links
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer


def load_aligned(name: str, **settings: Any) -> Any:
    """A translator with an alignment head, in float32, from a checkpoint with or without one.

    Args:
        name: folder, id on the Hub, or a bundled translator such as `demo:en-de`.
        settings: passed to `from_pretrained`, e.g. `alignment_layer=2`.

    >>> type(load_aligned("demo:en-de")).__name__
    'AlignedMarianMTModel'
    """
    kind = class_of_family(AlignmentHeadMixin, "aligned", name, load_config(name, "name"))
    try:
        return load_model(kind, name, "name", **settings)
    except InputError as error:
        if "alignment_" in str(error):
            raise InputError("settings", None, str(error.__cause__ or error)) from error
        raise


@dataclass
class AlignmentConfig(TranslationConfig):
    """`TranslationConfig` with the loss on links and the parameters it trains.

    >>> AlignmentConfig("runs/aligned", agreement=0.5, report_to=[]).link_loss
    'mass'
    """

    link_loss: str = option("mass", "mass: -log of the mass on linked source tokens; even: cross entropy with them.")
    agreement: float = option(0.0, "Weight of the squared distance to the soft links of the reverse model's head.")
    guided_layer: int | None = option(None, "Train a head of this cross-attention layer together with the translator.")
    guided_head: int = option(0, "Head of that layer.")
    guided_weight: float = option(0.05, "Weight of the loss on links next to the translation loss; 0.05 in the paper.")
    guided_shift: bool = option(True, "Align the token that a step reads; false aligns the one that it predicts.")

    def __post_init__(self):
        super().__post_init__()
        check_choice("link_loss", self.link_loss, LINK_LOSSES)
        check_fields(self, "must not be negative", lambda x: x < 0, "agreement", "guided_weight")
        if self.gradient_checkpointing:
            problem = "is not supported: states are computed without gradient, or recorded"
            raise InputError("gradient_checkpointing", None, problem, "turn it off")
        if self.agreement and self.guided_layer is not None:
            raise InputError(
                "agreement", self.agreement, "is supported only for alignment heads", "leave out guided_layer"
            )


class AlignmentTrainer(TranslationTrainer):
    """`TranslationTrainer` for an alignment head; the rest of the translator is frozen.

    The translator's states are computed once per batch, without dropout, gradients or logits. With `guided_layer`, one
    head of the model's cross-attention is trained together with the translator (Garg et al. 2019), and the model then
    aligns with that head. `loss` in the logs is per target token; `link_loss`, logged in guided training, is the part
    from links since the last log. Evaluation scores translations.

    Args:
        model: a model with an alignment head, e.g. of `load_aligned`; any Transformer for guided training.
        args: an `AlignmentConfig`.
        teacher: produces the links of the training examples, e.g. `OwnLinks`; None if they already have `links`.
        reverse: model for the other direction with the same tokens and a head, for `agreement`.
        more: further arguments of `Seq2SeqTrainer`.

    >>> import tempfile
    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> pair = tokenizer("I like tea.", text_target="Ich mag Tee.")
    >>> pairs = [pair | {"links": [0, 0, 1, 1, 2, 2]}]  # source and target token of each link
    >>> args = hni.AlignmentConfig(tempfile.mkdtemp(), max_steps=1, save_strategy="no", report_to=[])
    >>> trainer = hni.AlignmentTrainer(model, args, processing_class=tokenizer, train_dataset=pairs)
    >>> trainer.train().global_step  # doctest: +ELLIPSIS
    {'train_runtime': ...}
    1
    """

    uses_parts = True
    args: AlignmentConfig

    def __init__(
        self, model: Any, args: AlignmentConfig, teacher: Teacher | None = None, reverse: Any = None, **more: Any
    ) -> None:
        self._guided = None if args.guided_layer is None else _cross_attention(model, args)
        if self._guided is None:
            if not hasattr(model, "alignment_head"):
                name = type(model).__name__
                raise InputError("model", None, f"{name} has no alignment head", "load it with load_aligned")
            model.requires_grad_(False)
            model.alignment_head.requires_grad_(True)
        if args.agreement and not hasattr(reverse, "alignment_head"):
            raise InputError("agreement", args.agreement, "needs a reverse model with an alignment head")
        if teacher is not None and more.get("train_dataset") is not None:
            more["train_dataset"] = _taught(teacher, more["train_dataset"], args)
        super().__init__(model=model, args=args, **more)
        self.train_collator = LinkCollator(self.train_collator)
        self._reverse = reverse if reverse is None else reverse.eval().requires_grad_(False).to(args.device)
        self._seen: list[Tensor] = []  # loss on links of each batch since the last log

    def compute_loss(self, model, inputs: dict[str, Any], return_outputs=False, num_items_in_batch=None):
        """Loss on links per target token; in guided training, with that of the translation."""
        inputs = dict(inputs)
        links = inputs.pop("links", None)
        if not model.training or links is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self._guided is not None:
            return self._guided_loss(model, inputs, links, return_outputs, num_items_in_batch)
        for stack in (self.model.get_encoder(), self.model.get_decoder()):
            stack.eval()
        labels = inputs["labels"]
        read = decoder_inputs(self.model, labels)
        soft = model(inputs["input_ids"], inputs["attention_mask"], read, only_alignment=True)  # [B, T, S]
        loss = LINK_LOSSES[self.args.link_loss](soft[:, 1:], links[:, :-1])  # EOS is never read and is not a word
        if self.args.agreement:
            loss = loss + self.args.agreement * self._agreement(soft, inputs)
        loss = self.per_token(loss, labels, num_items_in_batch)
        return (loss, None) if return_outputs else loss

    def _agreement(self, soft: Tensor, inputs: dict[str, Any]) -> Tensor:
        """Distance to the soft links of the other direction, over the words that both read."""
        assert self._reverse is not None  # checked when the trainer is made
        source, labels = inputs["input_ids"], inputs["labels"]
        there, real = inputs["attention_mask"].bool(), labels != -100
        turned = decoder_inputs(self._reverse, source.masked_fill(~there, -100))
        ids = labels.masked_fill(~real, self._reverse.config.pad_token_id)
        other = self._reverse.align_ids(ids, turned, real.long())  # [B, S, T]
        both = real[:, :-1, None] & there[:, None, :-1]  # [B, T - 1, S - 1]
        ours, theirs = soft[:, 1:, :-1] * both, other[:, 1:, :-1] * both.transpose(1, 2)
        return agreement_loss(ours, theirs)

    def _guided_loss(self, model, inputs: dict[str, Any], links: Tensor, return_outputs: bool, number: Any):
        attention = self._guided
        assert attention is not None  # compute_loss asks
        with Tape(attention.recorded) as tape:
            found = super().compute_loss(model, inputs, return_outputs, number)
        weights = attention_weights(tape, attention, inputs["attention_mask"])
        soft = weights[:, attention.heads.index(self.args.guided_head)].float()  # [B, T, S]
        rows = (soft[:, 1:], links[:, :-1]) if self.args.guided_shift else (soft, links)
        part = self.per_token(LINK_LOSSES[self.args.link_loss](*rows), inputs["labels"], number)
        self._seen.append(part.detach())
        loss, *outputs = found if return_outputs else (found,)
        loss = loss + self.args.guided_weight * part
        return (loss, *outputs) if return_outputs else loss

    def train(self, *args, **kwargs):
        """Train; a guided model then aligns with its head."""
        result = super().train(*args, **kwargs)
        if self._guided is not None:
            choice = {"layer": self.args.guided_layer, "head": self.args.guided_head}
            self.model.config.alignment = choice | {"shifted": self.args.guided_shift, "aer": self._error()}
        return result

    @torch.no_grad()
    def _error(self, number: int = 200) -> float:
        """Share of the linked target tokens of the first examples that the guided head links differently."""
        attention, wrong, total = self._guided, 0, 0
        assert attention is not None
        examples = [example for example, _ in zip(self.train_dataset, range(number), strict=False)]
        for example in examples:
            batch = {name: value.to(self.args.device) for name, value in self.train_collator([example]).items()}
            links = batch.pop("links")
            with Tape(attention.recorded) as tape:
                self.model.eval()(**batch)
            weights = attention_weights(tape, attention, batch["attention_mask"])
            soft = weights[:, attention.heads.index(self.args.guided_head)]
            soft, links = (soft[:, 1:], links[:, :-1]) if self.args.guided_shift else (soft, links)
            linked = links.any(-1)
            hit = links.gather(-1, soft.argmax(-1, keepdim=True))[..., 0].bool()
            wrong, total = wrong + int((linked & ~hit).sum()), total + int(linked.sum())
        return wrong / max(total, 1)

    def log(self, logs: dict[str, Any], *args, **kwargs) -> None:
        """Also logs the loss on links in guided training."""
        if "loss" in logs and self._seen:
            logs["link_loss"] = round(torch.stack(self._seen).mean().item(), 5)
            self._seen.clear()
        super().log(logs, *args, **kwargs)


def _cross_attention(model: Any, args: AlignmentConfig) -> Attention:
    """The cross-attention layer that is guided."""
    layers = any_parts(model).attentions("cross")
    layer, head = args.guided_layer, args.guided_head
    if layer is None or not 0 <= layer < len(layers):
        raise InputError("guided_layer", layer, "is out of range", f"the decoder has layers 0 to {len(layers) - 1}")
    if layers[layer].calibrated:
        raise InputError("guided_layer", layer, "is calibrated, which is not supported", "guide another model")
    if head not in layers[layer].heads:
        raise InputError("guided_head", head, f"is not a head of layer {layer}", f"it has {layers[layer].heads}")
    return layers[layer]


def _taught(teacher: Teacher, examples: Any, args: Any) -> Any:
    """Training examples with links; a list is aligned once, by the first process, and saved for the others."""
    if not isinstance(examples, Sequence):
        return Restartable(lambda: teach(teacher, iter(examples), args.bf16_products))
    file = Path(args.output_dir) / LINKS
    with args.main_process_first(desc="links"):
        if args.process_index == 0 and not (file.exists() and list_checkpoints(args.output_dir)):
            found = list(teach(teacher, iter(examples), args.bf16_products))
            file.parent.mkdir(parents=True, exist_ok=True)
            pairs = [example["links"] for example in found]
            write_links(file, [set(zip(own[::2], own[1::2], strict=True)) for own in pairs])
    return _linked(examples, file)


def _linked(examples: Sequence[Example], file: Path) -> list[Example]:
    links = read_links(file)
    if len(links) != len(examples):
        problem = f"{file} has {len(links)} lines for {len(examples)} examples"
        raise InputError("train_dataset", None, problem, "remove it to align them again")
    return [with_links(example, own) for example, own in zip(examples, links, strict=True)]


@dataclass
class LinkCollator:
    """Pads a batch with another collator, and adds `links` [B, T, S], 1 where two tokens are linked."""

    collate: Any

    def __call__(self, examples: Iterable[Example]) -> dict[str, Tensor]:
        """A batch; examples of an evaluation have no links."""
        examples = list(examples)
        batch = self.collate([{name: example[name] for name in ("input_ids", "labels")} for example in examples])
        size = *batch["labels"].shape, batch["input_ids"].shape[1]
        batch["links"] = torch.zeros(size)
        for b, example in enumerate(examples):
            batch["links"][b, example["links"][1::2], example["links"][::2]] = 1
        return batch

    def __getattr__(self, name: str) -> Any:
        if name in ("collate", "__setstate__"):
            raise AttributeError(name)
        return getattr(self.collate, name)  # for `reseed`, which seeds the noise of each batch
