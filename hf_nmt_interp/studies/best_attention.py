"""The cross-attention layer and head that aligns best, chosen on a development set with gold links or without them.

Without: two translators of opposite directions align the same words, and where they agree, both are likely to be right
(Chen et al. 2020 choose layers this way).
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch

from hf_nmt_interp.analysis.alignment import extract_links, word_scores
from hf_nmt_interp.analysis.symmetrization import flip
from hf_nmt_interp.attribution.attention import all_labels_as_inputs, attention_weights
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.decoding.batch import Batch, evaluating, run_model
from hf_nmt_interp.decoding.pairs import Pairs, Text
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics import best_first
from hf_nmt_interp.metrics.aer import rate
from hf_nmt_interp.metrics.aer.rate import alignment_error_rate
from hf_nmt_interp.models.families import Parts, parts
from hf_nmt_interp.text.pharaoh import Links

Key = tuple[int, int | None, bool]  # layer, head (None is the mean of all), shifted


class AttentionChoice(NamedTuple):
    """A way to align by attention: `AttentionWeights(model, layer, head, shifted)`; head None is the mean of all."""

    layer: int
    head: int | None
    shifted: bool
    aer: float

    def store(self, model: Any) -> None:
        """Make it the default of `attention` for this model; `save_pretrained` keeps it in config.json."""
        model.config.alignment = self._asdict()


def attention_error_rates(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Text],  # best as lists of words, so that words count as in the gold links
    targets: Sequence[Text],
    gold: Sequence[Links] | tuple[Sequence[Links], Sequence[Links]],  # or sure and possible ones, as of `read_gold`
    batch_size: int = 16,
) -> list[AttentionChoice]:
    """Alignment error rates of all layers and heads, plain and shifted, best first, from one pass over the data."""
    sure, possible = gold if isinstance(gold, tuple) else (gold, gold)
    if not len(sources) == len(targets) == len(sure):
        raise InputError("gold", len(sure), f"pairs, but {len(sources)} sources and {len(targets)} targets")
    links = attention_links(model, tokenizer, sources, targets, batch_size)
    rates = [AttentionChoice(*key, alignment_error_rate(found, sure, possible)["aer"]) for key, found in links.items()]
    return best_first(rates, lambda choice: choice.aer, rate)


def attention_links(
    model: Any, tokenizer: Any, sources: Sequence[Text], targets: Sequence[Text], batch_size: int = 16
) -> dict[Key, list[Links]]:
    """Links of each sentence pair by each (layer, head, shifted), from one pass over the data."""
    translator = parts(model)
    pairs = Pairs.force(model, tokenizer, sources, targets)
    links: dict[Key, list[Links]] = {}
    for rows, batch in pairs.batches(batch_size):
        for (layer, head), weights in _cross_weights(model, translator, batch).items():
            for shifted in (False, True):
                found = links.setdefault((layer, head, shifted), [set()] * len(pairs))
                for b, n in enumerate(rows):
                    S, T = len(pairs[n].ids.source_ids), len(pairs[n].ids.target_ids)
                    scores = weights[b, shifted : shifted + T, :S].float().cpu().numpy()
                    found[n] = extract_links(word_scores(scores, pairs[n].source, pairs[n].target))
    return links


def agreeing_attention(
    forward: Mapping[Key, Sequence[Links]], backward: Mapping[Key, Sequence[Links]], heads: bool, shifted: bool
) -> tuple[AttentionChoice, AttentionChoice]:
    """The layers of two opposite translators whose `attention_links` of the same pairs agree best, without gold links.

    A single head may be chosen if `heads`, else the mean over heads. `aer` is that of the one's links against the
    other's.
    """
    ours, theirs = (
        {key: found for key, found in links.items() if key[2] == shifted and (heads or key[1] is None)}
        for links in (forward, backward)
    )
    flipped = {key: [flip(pair) for pair in found] for key, found in theirs.items()}
    rates = {(a, b): alignment_error_rate(ours[a], flipped[b])["aer"] for a, b in product(ours, flipped)}
    chosen: tuple[Key, Key] = best_first(rates, rates.__getitem__, rate)[0]
    return AttentionChoice(*chosen[0], rates[chosen]), AttentionChoice(*chosen[1], rates[chosen])


def best_attention(
    model: Any, tokenizer: Any, sources: Sequence[Text], targets: Sequence[Text], gold: Any, batch_size: int = 16
) -> AttentionChoice:
    """The best of `attention_error_rates`; its `store(model)` makes it the model's default."""
    rates = attention_error_rates(model, tokenizer, sources, targets, gold, batch_size)
    if not rates:
        raise InputError("sources", None, "none given", "the choice needs a development set")
    return rates[0]


@torch.no_grad()
def _cross_weights(model: Any, translator: Parts, batch: Batch) -> dict[tuple[int, int | None], torch.Tensor]:
    """Cross-attention weights [B, T + 1, S] of each layer and head; head None is the mean."""
    layers = [(n, a) for n, a in enumerate(translator.cross) if a.heads]
    if not layers:
        raise InputError("model", None, "it has lost all its cross-attention heads", "choose among those of another")
    with evaluating(model), Tape([m for _, a in layers for m in a.recorded]) as tape:
        run_model(model, batch.inputs() | {"decoder_input_ids": all_labels_as_inputs(model, batch)})
    found: dict[tuple[int, int | None], torch.Tensor] = {}
    for layer, attention in layers:
        weights = attention_weights(tape, attention, batch.attention_mask)
        found[layer, None] = weights.mean(1)
        found |= {(layer, head): weights[:, h] for h, head in enumerate(attention.heads)}
    return found
