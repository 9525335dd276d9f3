"""Draws candidates for encoded sources, and scores them in chunks under a memory budget."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hf_nmt_interp.decoding.batch import label_log_probs
from hf_nmt_interp.decoding.sampling import Sample, ancestral_samples, encoded
from hf_nmt_interp.training.batching import cut_by_tokens
from hf_nmt_interp.training.losses import linear_cross_entropy

SEARCHES = ("sample", "top_p", "beam")
_SAMPLED = 16  # tokens sampled at a time per scored token: a cache is that much smaller than a graph
_LOGITS = 2**28  # logits in memory at a time if the loss cannot be fused


@dataclass(frozen=True)
class Sources:
    """Encoded sources of a batch."""

    states: Tensor  # [B, S, d] of the encoder
    mask: Tensor  # [B, S]
    start: Tensor  # [B] first token of the decoder's input


@dataclass(frozen=True)
class Candidate:
    """A translation of source number `row`, and the factor of its log P."""

    row: int
    ids: tuple[int, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class CandidateScorer:
    """Draws candidates and scores them."""

    model: Any  # any encoder-decoder, in evaluation mode while it is used here
    budget: int  # maximum padded tokens per side that are scored at a time
    fused: bool  # whether logits are `lm_head(states) + final_logits_bias`, so not all are needed in memory
    autocast: Callable[[], AbstractContextManager[Any]]  # creates the context for forward passes

    def draw(self, sources: Sources, search: str, number: int, limit: int, top_p: float = 1.0) -> list[list[Sample]]:
        """Draw `number` candidates of up to `limit` tokens per source, with log P(y|x); `search` as in `MRTConfig`."""
        at_once = max(1, _SAMPLED * self.budget // (number * (sources.mask.shape[1] + limit)))
        parts = zip(*(x.detach().split(at_once) for x in (sources.states, sources.mask, sources.start)), strict=True)
        found: list[list[Sample]] = []
        for some in (Sources(*part) for part in parts):
            with self.autocast():
                if search == "sample":
                    found += ancestral_samples(self.model, some.states, some.mask, some.start, number, limit)
                else:
                    found += self._generate(some, number, limit, top_p if search == "top_p" else None)
        return found

    @torch.inference_mode()
    def _generate(self, sources: Sources, number: int, limit: int, top_p: float | None) -> list[list[Sample]]:
        """Candidates from `generate()`, with log P from one more pass."""
        options: dict[str, Any] = {"num_beams": number, "do_sample": False}
        if top_p is not None:
            options = {"num_beams": 1, "do_sample": True, "top_p": top_p, "top_k": 0, "temperature": 1.0}
        options |= {"encoder_outputs": encoded(sources.states), "attention_mask": sources.mask}
        options |= {"decoder_input_ids": sources.start[:, None], "num_return_sequences": number}
        ids = self.model.generate(**options, max_length=limit + 1)
        ends = ids_of(self.model.generation_config.eos_token_id)
        every = [Candidate(i // number, until(row[1:], ends)) for i, row in enumerate(ids.tolist())]
        scores: dict[Candidate, float] = {}
        for chunk in self._chunks(sources, list(dict.fromkeys(every))):
            labels, inputs = self._inputs(sources, sources.states, chunk)
            log_probs = label_log_probs(self.model(**inputs).logits.float(), labels).sum(-1)
            scores.update(zip(chunk, log_probs.tolist(), strict=True))
        samples = [Sample(c.ids, scores[c]) for c in every]
        return [samples[i : i + number] for i in range(0, len(samples), number)]

    def weighted_sum(self, sources: Sources, candidates: list[Candidate]) -> Tensor:
        """Sum of weight * log P(y|x), with its gradient; only the graph of one chunk is in memory at a time."""
        inputs = [sources.states, *(p for p in self.model.parameters() if p.requires_grad)]
        total = torch.zeros((), device=sources.mask.device)
        gradients: list[Tensor | None] = [None] * len(inputs)
        for chunk in self._chunks(sources, candidates):
            leaf = sources.states.detach().requires_grad_()
            with self.autocast():
                value = self._weighted(sources, leaf, chunk)
            found = torch.autograd.grad(value, [leaf, *inputs[1:]], allow_unused=True)
            gradients = list(map(_add, gradients, found))
            total += value.detach()
        # a launcher's hooks count even an empty gradient, so unused tensors are left out
        known = [(x, g) for x, g in zip(inputs, gradients, strict=True) if g is not None]
        return _Known.apply(total, [g for _, g in known], *(x for x, _ in known))

    def _weighted(self, sources: Sources, states: Tensor, chunk: list[Candidate]) -> Tensor:
        labels, inputs = self._inputs(sources, states, chunk)
        weights = torch.tensor([c.weight for c in chunk], device=states.device)
        if not self.fused:
            return label_log_probs(self.model(**inputs).logits.float(), labels).sum(-1) @ weights
        hidden = self.model.model(**inputs).last_hidden_state
        head, bias = self.model.lm_head.weight, self.model.final_logits_bias[0]
        weights = weights.to(hidden.dtype)[:, None].expand_as(labels)
        return -linear_cross_entropy(hidden, head, bias, labels, position_weights=weights)

    def _chunks(self, sources: Sources, candidates: list[Candidate]) -> Iterator[list[Candidate]]:
        """Candidates of similar length under the budget."""
        candidates = sorted(candidates, key=lambda c: len(c.ids))
        budget = self.budget
        if not self.fused:
            budget = min(budget, max(1, _LOGITS // self.model.get_output_embeddings().weight.shape[0]))
        for cut in cut_by_tokens([(len(c.ids), sources.mask.shape[1]) for c in candidates], budget):
            yield candidates[cut]

    def _inputs(self, sources: Sources, states: Tensor, chunk: list[Candidate]) -> tuple[Tensor, dict[str, Any]]:
        """Labels [n, T] of candidates, and the decoder's inputs with the states of their sources."""
        rows = torch.tensor([c.row for c in chunk], device=states.device)
        labels, shifted = pad_targets([c.ids for c in chunk], sources.start[rows], self.model.config.pad_token_id)
        source = {"encoder_outputs": encoded(states[rows]), "attention_mask": sources.mask[rows]}
        return labels, source | {"decoder_input_ids": shifted, "use_cache": False}


class _Known(torch.autograd.Function):
    """A value whose gradients with respect to tensors are already known."""

    @staticmethod
    def forward(ctx, value, gradients, *tensors):
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return None, None, *(gradient * grad for gradient in ctx.saved_tensors)


def _add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The sum of tensors, computed in place in the first one."""
    return b if a is None else a if b is None else a.add_(b)


def pad_targets(rows: Sequence[Sequence[int]], start: Tensor, pad_id: int) -> tuple[Tensor, Tensor]:
    """Labels [n, T], padded with -100, and decoder inputs [n, T] of translations given as ids.

    >>> pad_targets([(5, 6, 0), (7, 0)], torch.tensor([9, 9]), pad_id=9)[1]
    tensor([[9, 5, 6],
            [9, 7, 0]])
    """
    width = max(map(len, rows))
    labels = torch.tensor([[*row, *[-100] * (width - len(row))] for row in rows], device=start.device)
    shifted = torch.cat([start[:, None], labels[:, :-1]], dim=1)
    return labels, shifted.masked_fill(shifted == -100, pad_id)


def ids_of(setting: int | list[int] | None) -> set[int]:
    """The ids in a setting such as `eos_token_id`."""
    return set() if setting is None else set(torch.as_tensor(setting).flatten().tolist())


def until(ids: Sequence[int], ends: set[int]) -> tuple[int, ...]:
    """Ids up to the first one that ends a translation.

    >>> until([5, 6, 0, 9, 9], {0})
    (5, 6, 0)
    """
    return tuple(ids[: next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))])
