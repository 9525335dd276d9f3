"""Contrasts: other translations that a translation is compared with (why this word and not that one)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hf_nmt_interp.decoding.pairs import NO_SPLITTING, Pair, Pairs, Splitting, encode_targets
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.text.tokens import TokenWords, words_of

Contrast = str | Mapping[Any, Any] | None  # another translation; {word: other word}; {number of a token: other token}
STEPS = ("first", "all", "prefix")


def contrasted(
    pairs: Pairs,
    tokenizer: Any,
    contrasts: Sequence[Contrast],
    steps: str = "first",
    splitting: Splitting = NO_SPLITTING,
) -> Pairs:
    """The pairs with alternative labels for their steps.

    Args:
        pairs: sentences and their translations.
        tokenizer: the model's tokenizer.
        contrasts: one per pair: another translation, `{"word": "other word"}` for one word of the translation,
            `{3: "token"}` for the token at index 3, or None to compare nothing.
        steps: "first" compares the first token that differs, after which the prefixes differ too; "all"
            compares every token that differs, after the prefix of the pair's own translation; "prefix" compares all
            steps after the first difference.
        splitting: how to split text into words.
    """
    if isinstance(contrasts, str) or len(contrasts) != len(pairs):
        count = 1 if isinstance(contrasts, str) else len(contrasts)
        raise InputError("contrast", count, f"contrasts for {len(pairs)} sentences", "give one each")
    found = []
    for row, (pair, contrast) in enumerate(zip(pairs, contrasts, strict=True)):
        if contrast is not None:
            whole = _other_labels(pairs.model, tokenizer, pair, contrast, splitting, row)
            if steps == "prefix":
                before = [words_of(tokenizer, whole[:t], True, **splitting) for t in range(len(whole))]
                texts = [side.text or " ".join(side.tokens) for side in before]
            else:
                side = words_of(tokenizer, whole, True, **splitting)
                texts = [t if w is None else side.words[w] for t, w in zip(side.tokens, side.word_ids, strict=True)]
            pair = _compared(pair, contrast, whole, texts, steps, row)
        found.append(pair)
    return replace(pairs, items=found)


def _compared(pair: Pair, contrast: Contrast, whole: list[int], texts: list[str], steps: str, row: int) -> Pair:
    """A pair with the labels of a contrast, displayed as these texts, at the steps that are compared."""
    labels = pair.ids.target_ids
    others = [*whole[: len(labels)], *[-100] * (len(labels) - len(whole))]
    differs = [other not in (own, -100) for own, other in zip(labels, others, strict=True)]
    if True not in differs:
        problem = "does not differ from the translation where both have tokens"
        raise InputError("contrast", contrast, problem, "give another word or translation", row)
    first = differs.index(True)
    if steps == "first":
        others[first + 1 :] = [-100] * (len(labels) - first - 1)
        differs = [t == first for t in range(len(labels))]
    elif steps == "prefix":
        differs = [t > first and other != -100 for t, other in enumerate(others)]
    return replace(pair, contrast=others, contrast_words=[texts[t] if on else None for t, on in enumerate(differs)])


def _other_labels(model: Any, tokenizer: Any, pair: Pair, contrast: Any, splitting: Splitting, row: int) -> list[int]:
    """Labels of a contrast: those of the pair up to the first word that differs, then those of the other text.

    Both then have the same language code and the same subwords before that word, even for generated translations.
    """
    if isinstance(contrast, Mapping):
        if len(contrast) != 1:
            problem = "must have one entry, a word and its replacement"
            raise InputError("contrast", dict(contrast), problem, "give {'word': 'other'} or a full translation", row)
        ((own, other),) = contrast.items()
        if isinstance(own, int):
            return _with_token(tokenizer, pair, own, other, row)
        contrast = _with_word(pair.target, str(own), str(other), row)
    if not isinstance(contrast, str):
        problem = f"{type(contrast).__name__} is not a translation"
        raise InputError("contrast", None, problem, "give text, or {'word': 'other word'}", row)
    encoded = encode_targets(model, tokenizer, [contrast], splitting)[0]
    words = pair.target.words, encoded.token_words.words
    word = next((n for n, both in enumerate(zip(*words, strict=False)) if both[0] != both[1]), min(map(len, words)))
    at, there = _start(pair.target, word), _start(encoded.token_words, word)
    return [*pair.ids.target_ids[:at], *encoded.ids[there:]]


def _start(side: TokenWords, word: int) -> int:
    """Where a word starts; for a word beyond the end, where the words end."""
    places = [t for t, number in enumerate(side.word_ids) if number is not None]
    return next((t for t in places if side.word_ids[t] == word), places[-1] + 1 if places else 0)


def _with_word(side: TokenWords, own: str, other: str, row: int) -> str:
    """The translation with one word replaced."""
    text, count = side.text, side.words.count(own)
    places = [match.start() for match in re.finditer(re.escape(own), text)] if own else []
    if len(places) > 1:  # also inside other words
        places = [match.start() for match in re.finditer(rf"(?<!\w){re.escape(own)}(?!\w)", text)]
    if count > 1 or len(places) != 1:
        problem = f"occurs {max(count, len(places))} times in {text!r}"
        raise InputError("contrast", own, problem, "give the full other translation", row)
    return text[: places[0]] + other + text[places[0] + len(own) :]


def _with_token(tokenizer: Any, pair: Pair, place: int, other: Any, row: int) -> list[int]:
    """The labels with one token replaced by another, given as text or id."""
    labels = list(pair.ids.target_ids)
    if not 0 <= place < len(labels):
        problem = f"is out of range: the translation has {len(labels)} tokens, counted from 0"
        raise InputError("contrast", place, problem, "see target_tokens of the result, or --tokens", row)
    token = other if isinstance(other, int) else tokenizer.get_vocab().get(other)
    if token is None or not 0 <= token < len(tokenizer):
        raise InputError("contrast", other, "is not a token of the tokenizer", "see tokenizer.tokenize", row)
    labels[place] = token
    return labels


def check_steps(steps: str) -> None:
    """Raise for values that users cannot set."""
    check_choice("contrast_steps", steps, STEPS[:2])
