"""Trains many seeds of one LSTM model in parallel: weights are stacked to [R, ...], R small products become one batch.

Batches must not be padded, and dropout must be 0, as in the toy tasks. A stack computes the same as its models one by
one, and the gradient of the sum of their losses is that of each model, so one Adam optimizer trains all of them.
(`torch.func.vmap`, which could use the models directly, does not support `nn.LSTM`.)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.func import stack_module_state

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.files import atomic


class Stack(ABC):
    """Weights [R, ...] of R models of one configuration, by name; `requires_grad` is that of the models."""

    def __init__(self, models: Sequence[Any]) -> None:
        if not models:
            raise InputError("models", None, "is empty", "give at least one")
        self.config = models[0].config
        if self.config.dropout and models[0].training:
            remedy = "only dropout=0 is supported"
            raise InputError("models", None, f"dropout={self.config.dropout}", remedy)
        stacked, _ = stack_module_state(list(models))
        self.weights: dict[str, Tensor] = {
            name: stacked[name].detach().requires_grad_(parameter.requires_grad)
            for name, parameter in models[0].named_parameters()
        }

    @abstractmethod
    def __call__(self, source: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Logits and the models' other outputs, from words [R, B, S] and labels [R, B, ...]."""

    def freeze(self, kept: str) -> None:
        """Train only the weights whose names begin with `kept`."""
        for name, weight in self.weights.items():
            weight.requires_grad_(name.startswith(kept))

    def trained(self) -> list[Tensor]:
        """The weights that need gradients."""
        return [weight for weight in self.weights.values() if weight.requires_grad]

    def state_dict(self, model: int) -> dict[str, Tensor]:
        """Weights of one of the models, for its `load_state_dict(..., strict=False)` (a tied weight has one name)."""
        return {name: weight[model].detach().clone() for name, weight in self.weights.items()}

    def linear(self, name: str, x: Tensor) -> Tensor:
        """Each model's linear layer on its own x [R, ..., in], to [R, ..., out]."""
        flat, weight, bias = x.flatten(1, -2), self.weights[f"{name}.weight"].mT, self.weights.get(f"{name}.bias")
        y = flat @ weight if bias is None else torch.baddbmm(bias[:, None], flat, weight)
        return y.view(*x.shape[:-1], -1)

    def lstm(self, name: str, embeddings: str, ids: Tensor, first: Tensor | None = None) -> Tensor:
        """States [R, B, T, n] of an LSTM that reads words ids [R, B, T] and starts from a state [R, B, n], or 0."""
        weights = {key: self.weights[f"{name}.{key}_l0"] for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        bias = (weights["bias_ih"] + weights["bias_hh"])[:, None]
        words = torch.baddbmm(bias, self.weights[embeddings], weights["weight_ih"].mT)  # [R, V, 4 n], each word once
        row = ids + words.shape[1] * torch.arange(len(ids))[:, None, None]
        gates = F.embedding(row.permute(2, 0, 1), words.flatten(0, 1))  # [T, R, B, 4 n]
        recurrent = weights["weight_hh"].mT
        h = gates.new_zeros(*gates.shape[1:3], recurrent.shape[1]) if first is None else first
        c, states = torch.zeros_like(h), []
        for now in gates:
            i, f, g, o = torch.baddbmm(now, h, recurrent).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        return torch.stack(states, 2)


class StackedTranslators(Stack):
    """`LuongSeq2SeqForConditionalGeneration` R times: one direction, one layer, general attention."""

    def __init__(self, models: Sequence[Any]) -> None:
        super().__init__(models)
        wanted = {"bidirectional": False, "encoder_layers": 1, "decoder_layers": 1}
        for field, value in (wanted | {"attention": "general", "output": "hidden"}).items():
            if (found := getattr(self.config, field)) != value:
                remedy = f"only {field}={value!r} is supported"
                raise InputError("models", None, f"{field}={found!r}", remedy)

    def __call__(self, source: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [R, B, T, V] and attention weights [R, B, T, K, S] from words [R, B, S] and [R, B, T]."""
        start = torch.full_like(labels[..., :1], self.config.decoder_start_token_id)
        shared, own = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
        h = self.lstm("encoder.layers.forwards.0", shared, source)
        read = torch.cat([start, labels[..., :-1]], -1)
        s = self.lstm("decoder.layers.0", own if own in self.weights else shared, read, h[:, :, -1])
        if self.config.attention_mode == "uniform":
            query = s.new_zeros(*s.shape[:-1], self.config.attention_heads * s.shape[-1])
        else:
            query = self.linear("attention.weight", s)
        query = query.unflatten(-1, (self.config.attention_heads, -1)).flatten(2, 3)  # [R, B, T K, n]
        weights = (query @ h.mT).softmax(-1).unflatten(2, (s.shape[2], -1))  # [R, B, T, K, S]
        context = weights.sum(3) @ h
        return self.linear("lm_head", self.linear("hidden", torch.cat([context, s], -1)).relu()), weights


class StackedClassifiers(Stack):
    """`LSTMAttentionForSequenceClassification` R times, with one layer."""

    def __init__(self, models: Sequence[Any]) -> None:
        super().__init__(models)
        if (layers := self.config.encoder_layers) != 1:
            raise InputError("models", None, f"encoder_layers={layers}", "only encoder_layers=1 is supported")

    def __call__(self, source: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [R, B, C], attention weights [R, B, S] and the logits of each state alone [R, B, S, C]."""
        h = self.lstm("encoder.forwards.0", "embed_tokens.weight", source)  # [R, B, S, n]
        if self.config.bidirectional:
            back = self.lstm("encoder.backwards.0", "embed_tokens.weight", source.flip(-1)).flip(2)
            h = torch.cat([h, back], -1)  # [R, B, S, 2 n]
        a = self.linear("attention.2", self.linear("attention.0", h).relu())[..., 0]
        weights = (torch.zeros_like(a) if self.config.attention_mode == "uniform" else a).softmax(-1)
        alone = F.pad(self.linear("classifier", h), (1, 0))
        context = (weights[:, :, None] @ h)[:, :, 0]
        return F.pad(self.linear("classifier", context), (1, 0)), weights, alone


def losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy of each model [R] from logits [R, ..., V] and labels [R, ...]."""
    each = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return each.view(len(labels), -1).mean(1)


def train(
    stack: Stack,  # trained in place
    batch: Callable[[int], tuple[Tensor, Tensor]],  # words [R, B, S] and labels [R, B, ...] of a step, deterministic
    evaluate: Callable[[], dict[str, Tensor]],  # results of the current models
    *,
    steps: int,  # training steps
    eval_steps: int,  # between two evaluations
    learning_rate: float,  # for Adam
    file: Path,  # safetensors file for the state of the run
) -> list[dict[str, Any]]:
    """Train all models with Adam; returns the results of `evaluate` every `eval_steps` steps, starting at step 0.

    An interrupted run resumes from its last evaluation; a finished run is read from its file.
    """
    optimizer = torch.optim.Adam(stack.trained(), lr=learning_rate)
    records: list[dict[str, Any]] = []
    first = 0
    if file.exists():
        first, saved, records = _read(file)
        if first < steps:
            for name, weight in stack.weights.items():
                weight.data.copy_(saved["weights"][name])
            optimizer.load_state_dict(optimizer.state_dict() | {"state": saved["optimizer"]})
    for step in range(first, steps + 1):
        if step % eval_steps == 0 and (not records or records[-1]["step"] < step):
            with torch.no_grad():
                records.append({"step": step, **evaluate()})
            state = {"weights": stack.weights, "optimizer": optimizer.state_dict()["state"]}
            _write(file, step, state if step < steps else {}, records)
        if step < steps:
            source, labels = batch(step)
            optimizer.zero_grad()
            losses(stack(source, labels)[0], labels).sum().backward()
            optimizer.step()
    return records


def _flat(nested: dict[Any, Any], path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Tensors by their path, e.g. "optimizer/0/exp_avg"."""
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}/")
        else:
            yield f"{path}{key}", value.detach().clone(memory_format=torch.contiguous_format)


def _write(file: Path, step: int, state: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Write the state of a run as safetensors; a killed process leaves the complete file, or the previous one."""
    kept = {record["step"]: {key: x for key, x in record.items() if key != "step"} for record in records}
    with atomic(file) as part:
        save_file(dict(_flat(state | {"records": kept})), part, {"step": str(step)})


def _read(file: Path) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """Step, weights and optimizer (unless the run has finished) and records from a file of `_write`."""
    found: dict[Any, Any] = {"optimizer": {}}  # has no state before the first step
    with safe_open(file, "pt") as saved:
        for key in saved.keys():  # noqa: SIM118 - not a dictionary
            *path, name = [int(part) if part.isdecimal() else part for part in key.split("/")]
            reduce(lambda inner, part: inner.setdefault(part, {}), path, found)[name] = saved.get_tensor(key)
        records = [{"step": step, **record} for step, record in sorted(found["records"].items())]
        return int(saved.metadata()["step"]), found, records
