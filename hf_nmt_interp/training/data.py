"""Turns sentence pairs into examples of ids."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hf_nmt_interp.text.corpus import Example, Pair


def encode_examples(tokenizer: Any, pairs: Iterable[Pair], max_length: int, *, cut: bool = False) -> Iterator[Example]:
    """Tokenise sentence pairs; pairs with an empty side or more than `max_length` tokens on a side are left out.

    With `cut`, every pair is kept and truncated to `max_length` (for test sets, where each has a reference).
    """
    pairs = iter(pairs)
    while chunk := list(islice(pairs, 1000)):
        sources, targets = zip(*chunk, strict=True)
        limits = {"truncation": True, "max_length": max_length} if cut else {"verbose": False}
        encoded = tokenizer(list(sources), text_target=list(targets), **limits)
        for (source, target), input_ids, labels in zip(chunk, encoded["input_ids"], encoded["labels"], strict=True):
            if cut or (max(len(input_ids), len(labels)) <= max_length and source.strip() and target.strip()):
                yield {"input_ids": input_ids, "labels": labels}


@dataclass(frozen=True)
class Restartable:
    """An iterable that starts over at each `iter()`: a stream that training can read more than once."""

    start: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.start()
