"""Ancestral samples: y_t ~ P(y_t | x, y_<t), without temperature and without truncation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from hf_nmt_interp.errors import InputError

_BLOCK = 256  # block size: blocks are summed first, then the items of one block
_CROWDED = 0.75  # finished rows are dropped below this share of unfinished ones, which copies the cache


@dataclass(frozen=True)
class Sample:
    """Ids of a translation with its EOS, and log P(y|x) in nats."""

    ids: tuple[int, ...]
    log_prob: float


def draw(logits: Tensor, forbidden: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
    """Draw one item per row of logits [R, V], with the probabilities of their softmax: items [R], log P [R].

    Inverts the cumulative distribution at one uniform number per row, block by block: without sorting, and without a
    random number per item. Forbidden items are never drawn; log P still refers to the full softmax.
    """
    top = logits.amax(-1, keepdim=True)
    mass = (logits - top).exp_()
    normaliser = mass.sum(-1)
    mass[:, list(forbidden)] = 0
    blocks = F.pad(mass, (0, -mass.shape[1] % _BLOCK)).unflatten(-1, (-1, _BLOCK))  # [R, n, block]
    chosen, rest = _invert(blocks.sum(-1), torch.rand(len(logits), 1, device=logits.device, dtype=torch.double))
    block = blocks[torch.arange(len(blocks), device=logits.device), chosen]  # [R, block]
    within, _ = _invert(block, rest)
    items = chosen * _BLOCK + within
    return items, (logits.gather(-1, items[:, None]) - top)[:, 0] - normaliser.log()


def _invert(mass: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """The item at which cumulative masses [R, n] pass a share [R, 1] of their total, and the share of its own mass."""
    cumulative = mass.double().cumsum(-1)
    # below the total, so an item without mass is never chosen
    goal = cumulative[:, -1:] * share.clamp(max=1 - 1e-12)
    found = torch.searchsorted(cumulative, goal, right=True)
    own = mass.double().gather(-1, found)
    left = (goal - cumulative.gather(-1, found) + own) / own
    return found[:, 0], left.clamp(min=0)


@torch.inference_mode()
def ancestral_samples(
    model: Any, states: Tensor, attention_mask: Tensor, start: Tensor, number: int, limit: int
) -> list[list[Sample]]:
    """Draw `number` samples for each source with torch's global random state.

    The first step and the keys and values of the source are computed once per source; finished rows are dropped.
    Samples that reach the limit end with EOS. Padding is never drawn. The model must support transformers' caches and
    be in evaluation mode; encoder states are [B, S, d], the mask [B, S], start tokens [B].
    """
    ends, prefix, forbidden = _settings(model, start)
    given = prefix[:, 1:]  # a language token, whose probability counts
    sources = torch.arange(len(states), device=states.device).repeat_interleave(number)
    output = _step(model, states, attention_mask, prefix)
    output.past_key_values.batch_repeat_interleave(number)
    scores = output.logits[:, :-1].double().log_softmax(-1).gather(-1, given[..., None]).sum((1, 2))[sources]
    tokens = F.pad(given[sources], (0, limit - given.shape[1]), value=-1)  # [B * number, limit]
    logits, states, attention_mask = output.logits[:, -1][sources], states[sources], attention_mask[sources]
    live = torch.arange(len(sources), device=states.device)  # rows that are still computed
    ended = torch.zeros_like(live, dtype=torch.bool)  # those among them that are finished
    for t in range(given.shape[1], limit):
        items, log_probs = draw(logits.float(), forbidden) if t < limit - 1 else _end(logits, ends)
        tokens[live, t] = items.masked_fill(ended, -1)
        scores[live] += log_probs.double().masked_fill(ended, 0)
        ended = ended | torch.isin(items, ends)
        if t == limit - 1 or ended.all():
            break
        if ended.float().mean() > 1 - _CROWDED:
            kept = (~ended).nonzero()[:, 0]
            output.past_key_values.batch_select_indices(kept)
            live, ended, items = live[kept], ended[kept], items[kept]
            states, attention_mask = states[kept], attention_mask[kept]
        output = _step(model, states, attention_mask, items[:, None], output.past_key_values)
        logits = output.logits[:, -1]
    found = [
        Sample(tuple(token for token in row if token >= 0), score)
        for row, score in zip(tokens.tolist(), scores.tolist(), strict=True)
    ]
    return [found[i : i + number] for i in range(0, len(found), number)]


def encoded(states: Any) -> BaseModelOutput:
    """Encoder states [B, S, d] in the format that a model accepts instead of a source."""
    return BaseModelOutput(last_hidden_state=states)


def _step(model: Any, states: Tensor, attention_mask: Tensor, ids: Tensor, cache: Any = None) -> Any:
    """Logits after more decoder input, and the updated cache."""
    read = {"encoder_outputs": encoded(states), "attention_mask": attention_mask, "decoder_input_ids": ids}
    output = model(**read, past_key_values=cache, use_cache=True)
    if not isinstance(output.past_key_values, EncoderDecoderCache):
        problem = f"{type(model).__name__} has no EncoderDecoderCache"
        raise InputError("model", None, problem, "use beam or top_p for candidates")
    return output


def _end(logits: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """EOS for every row."""
    return ends[:1].expand(len(logits)), logits.float().log_softmax(-1)[:, ends[0]]


def _settings(model: Any, start: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """Ids that end a translation; initial ids [B, 1 or 2]; ids that are never drawn."""
    config = model.generation_config
    eos = config.eos_token_id if config.eos_token_id is not None else model.config.eos_token_id
    ends = torch.as_tensor(eos, device=start.device).flatten()
    prefix = start[:, None]
    language = config.forced_bos_token_id
    if language is not None and not (start == language).all():
        prefix = F.pad(prefix, (0, 1), value=language)
    pad = model.config.pad_token_id
    forbidden = [ids[0] for ids in config.bad_words_ids or [] if len(ids) == 1]
    return ends, prefix, [*forbidden, *([] if pad is None or pad in ends.tolist() else [pad])]
