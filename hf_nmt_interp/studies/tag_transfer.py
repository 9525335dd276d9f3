"""How often the tags of a word end up on its translation, according to the links of another aligner."""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hf_nmt_interp.analysis.markup import transfer_markup
from hf_nmt_interp.attribution.registry import parse_method
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import Pair
from hf_nmt_interp.text.pharaoh import Links

_TAG = re.compile(r"<(/?)t(\d+)>")


def tag_transfer(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[Pair],
    gold: tuple[Sequence[Links], Sequence[Links]],
    methods: Mapping[str, str | None],
    tags: int = 1,
    seed: int = 0,
) -> dict[str, float]:
    """Share of tags on the correct words for each alignment method.

    A tag is correct if it covers all target words with a sure link to its word, and no words without a possible link.
    Tagged words are drawn from those that have a sure link and no punctuation; pairs with fewer than `tags` of them
    are left out.

    Args:
        model: a translator.
        tokenizer: its tokenizer.
        pairs: sentence pairs; words are separated by spaces.
        gold: sure and possible links of each pair, which include the sure ones.
        methods: name -> method of `align`, with its settings; None for the model's default.
        tags: tagged words in each sentence.
        seed: seed for choosing the tagged words.
    """
    draw = random.Random(seed)
    chosen: list[tuple[int, list[int]]] = []
    for n, ((source, _), sure) in enumerate(zip(pairs, gold[0], strict=True)):
        words = sorted({i for i, _ in sure if source.split()[i].isalnum()})
        if len(words) >= tags:
            chosen.append((n, sorted(draw.sample(words, tags))))
    if not chosen:
        raise InputError("pairs", None, f"none of {len(pairs)} has {tags} linked words to tag", "give longer pairs")
    sources, targets = [tagged(pairs[n][0], words) for n, words in chosen], [pairs[n][1] for n, _ in chosen]
    shares = {}
    for name, method in methods.items():
        own, settings = parse_method(method) if method else (None, {})
        found = transfer_markup(sources, model, tokenizer, targets, method=own, **settings)
        right = [
            _linked(gold[0][n], word) <= covered_words(text, word) <= _linked(gold[1][n], word)
            for (n, words), text in zip(chosen, found, strict=True)
            for word in words
        ]
        shares[name] = sum(right) / len(right)
    return shares


def tagged(source: str, words: Sequence[int]) -> str:
    """A sentence with a tag around each of these words.

    >>> tagged("a red car", [1])
    'a <t1>red</t1> car'
    """
    return " ".join(f"<t{i}>{word}</t{i}>" if i in words else word for i, word in enumerate(source.split()))


def covered_words(text: str, tag: int) -> set[int]:
    """Indices of the space-separated words that a tag covers, fully or partly.

    >>> sorted(covered_words("ein <t1>rotes</t1> <t2>Auto</t2>.", 2))
    [2]
    """
    covered, inside = set(), False
    for number, word in enumerate(text.split()):
        at = 0
        for match in [*_TAG.finditer(word), None]:
            if inside and word[at : match.start() if match else None]:
                covered.add(number)
            if match:
                inside = not match[1] if int(match[2]) == tag else inside
                at = match.end()
    return covered


def _linked(links: Links, word: int) -> set[int]:
    return {j for i, j in links if i == word}
