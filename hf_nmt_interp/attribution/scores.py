"""The score to explain: a function of each step's logits.

Definitions: docs/methods.md, Scores.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hf_nmt_interp.decoding.batch import Batch, run_model
from hf_nmt_interp.errors import InputError, check_choice

Scoring = Callable[[Tensor], Tensor]  # logits [B, T, V] -> [B, T]


class Score(NamedTuple):
    """A score of every step: how it is computed from a batch's logits (it may run the model), and its steps."""

    scoring: Callable[[Batch], Scoring]
    steps: Callable[[Batch], Tensor]  # [B, T]


def _logit(logits: Tensor, items: Tensor) -> Tensor:
    return logits.gather(-1, items.clamp(min=0)[..., None])[..., 0]


def _log_probability(logits: Tensor, items: Tensor) -> Tensor:
    return _logit(logits, items) - logits.logsumexp(-1)


ITEM_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # of items [B, T]
    "log_probability": _log_probability,
    "probability": lambda logits, items: _log_probability(logits, items).exp(),
    "logit": _logit,
}


def _item_scoring(of: Callable[[Tensor, Tensor], Tensor], batch: Batch) -> Scoring:
    """Score of the labels; with a contrast, minus the score of the other labels."""
    if batch.contrast is None:
        return lambda logits: of(logits, batch.labels)
    items, others, rest = batch.labels, batch.contrast, ~batch.compared
    return lambda logits: (of(logits, items) - of(logits, others)).masked_fill(rest, 0)


def _log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities [..., V]; those of banned words, -inf, as the smallest number, which has no gradient."""
    return logits.log_softmax(-1).clamp(min=torch.finfo(logits.dtype).min / 2)


def _entropy(batch: Batch) -> Scoring:
    """Entropy of each step's distribution, in nats."""
    if batch.contrast is not None:
        raise InputError(
            "score", "entropy", "is not a score of a label, so there is nothing to compare", "leave out contrast"
        )

    def scoring(logits: Tensor) -> Tensor:
        log_p = _log_softmax(logits)
        return -(log_p.exp() * log_p).sum(-1)

    return scoring


def _divergence(model: Any, batch: Batch) -> Scoring:
    """KL(p || p') in nats, p' the model's distribution after the prefix of the contrast."""
    if batch.contrast is None:
        raise InputError("score", "kl", "compares two prefixes", "give another translation as contrast")
    with torch.no_grad():
        read = torch.cat([batch.decoder_input_ids[:, :1], batch.contrast[:, :-1]], 1)
        read = torch.where(read == -100, batch.decoder_input_ids, read)  # those steps are not explained
        other = _log_softmax(run_model(model, batch.inputs() | {"decoder_input_ids": read}).logits)
    rest = ~_other_prefixes(batch)

    def scoring(logits: Tensor) -> Tensor:
        log_p = _log_softmax(logits)
        return (log_p.exp() * (log_p - other)).sum(-1).masked_fill(rest, 0)

    return scoring


def _other_prefixes(batch: Batch) -> Tensor:
    """[B, T], steps whose prefixes differ in the contrast."""
    assert batch.contrast is not None  # checked by the caller
    differ = torch.nn.functional.pad(batch.compared[:, :-1], (1, 0)).cumsum(-1) > 0
    return differ & (batch.contrast != -100) & (batch.labels != -100)


def _compared(batch: Batch) -> Tensor:
    return batch.compared


STEP_SCORES: dict[str, Callable[[Any], Score]] = {  # of a model
    **{
        name: lambda model, of=of: Score(partial(_item_scoring, of), _compared)  # type: ignore[misc]
        for name, of in ITEM_SCORES.items()
    },
    "entropy": lambda model: Score(_entropy, _compared),
    "kl": lambda model: Score(partial(_divergence, model), _other_prefixes),
}


def make_score(model: Any, name: str) -> Score:
    """The score with this name.

    "log_probability", "probability" and "logit" are those of the label. If the batch has a contrast, they are the
    difference between the label and the other label, and 0 at steps without one. "entropy" is the entropy of the step,
    "kl" the divergence of its distribution from the one after the prefix of the contrast, where the prefixes differ.
    """
    check_choice("score", name, STEP_SCORES)
    return STEP_SCORES[name](model)


def compares_prefixes(settings: Mapping[str, Any]) -> bool:
    """Whether a method with these settings compares a contrast's prefixes, not its labels."""
    return settings.get("score") == "kl"


def contrast_steps(settings: Mapping[str, Any], asked: str) -> str:
    """Which steps of a contrast are compared: the given value, except for scores that compare prefixes."""
    return "prefix" if compares_prefixes(settings) else asked
