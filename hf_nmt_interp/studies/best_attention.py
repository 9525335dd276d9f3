"""The cross-attention layer and head that align best, chosen on a development set with or without gold links.

Without gold links, two translators of opposite directions align the same words, and where they agree, both are likely
to be right (Chen et al. 2020 choose layers this way).
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from hf_nmt_interp.analysis.own_attention import AttentionChoice, Key, attention_links
from hf_nmt_interp.analysis.symmetrization import flip
from hf_nmt_interp.decoding.pairs import Text
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics import best_first
from hf_nmt_interp.metrics.aer import rate
from hf_nmt_interp.metrics.aer.rate import alignment_error_rate
from hf_nmt_interp.text.pharaoh import Links


def attention_error_rates(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Text],  # preferably lists of words, counted as in the gold links
    targets: Sequence[Text],
    gold: Sequence[Links] | tuple[Sequence[Links], Sequence[Links]],  # or (sure, possible) from `read_gold`
    batch_size: int = 16,
) -> list[AttentionChoice]:
    """Alignment error rates of all layers and heads, plain and shifted, best first, from one pass over the data."""
    sure, possible = gold if isinstance(gold, tuple) else (gold, gold)
    if not len(sources) == len(targets) == len(sure):
        raise InputError("gold", len(sure), f"pairs, but {len(sources)} sources and {len(targets)} targets")
    links = attention_links(model, tokenizer, sources, targets, batch_size)
    rates = [AttentionChoice(*key, alignment_error_rate(found, sure, possible)["aer"]) for key, found in links.items()]
    return best_first(rates, lambda choice: choice.aer, rate)


def agreeing_attention(
    forward: Mapping[Key, Sequence[Links]], backward: Mapping[Key, Sequence[Links]], heads: bool, shifted: bool
) -> tuple[AttentionChoice, AttentionChoice]:
    """The layers of two opposite translators whose `attention_links` of the same pairs agree best, without gold links.

    With `heads`, a single head may be chosen, otherwise the mean over heads. `aer` compares the links of the two
    translators.
    """
    ours, theirs = (
        {key: found for key, found in links.items() if key[2] == shifted and (heads or key[1] is None)}
        for links in (forward, backward)
    )
    flipped = {key: [flip(pair) for pair in found] for key, found in theirs.items()}
    rates = {(a, b): alignment_error_rate(ours[a], flipped[b])["aer"] for a, b in product(ours, flipped)}
    chosen: tuple[Key, Key] = best_first(rates, rates.__getitem__, rate)[0]
    return AttentionChoice(*chosen[0], rates[chosen]), AttentionChoice(*chosen[1], rates[chosen])


@takes_names
def best_attention(
    model: Any, tokenizer: Any, sources: Sequence[Text], targets: Sequence[Text], gold: Any, batch_size: int = 16
) -> AttentionChoice:
    """The best of `attention_error_rates`; its `store(model)` makes it the model's default.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> choice = hni.best_attention(model, tokenizer, ["I like tea."], ["Ich mag Tee."], [{(0, 0), (1, 1), (2, 2)}])
    >>> choice.aer
    0.0
    """
    rates = attention_error_rates(model, tokenizer, sources, targets, gold, batch_size)
    if not rates:
        raise InputError("sources", None, "none given", "the choice needs a development set")
    return rates[0]
