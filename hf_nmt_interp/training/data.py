"""From pairs of sentences to examples of ids."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hf_nmt_interp.text.corpus import Pair
from hf_nmt_interp.training.batching import Example


def encode_pairs(tokenizer: Any, pairs: Iterable[Pair], max_length: int | None = None) -> Iterator[Example]:
    """Tokenise pairs; those longer than `max_length` on either side, or empty, are left out if it is given."""
    pairs = iter(pairs)
    while chunk := list(islice(pairs, 1000)):
        sources, targets = zip(*chunk, strict=True)
        encoded = tokenizer(list(sources), text_target=list(targets))
        for (source, target), input_ids, labels in zip(chunk, encoded["input_ids"], encoded["labels"], strict=True):
            if max_length is None or (max(len(input_ids), len(labels)) <= max_length and source and target):
                yield {"input_ids": input_ids, "labels": labels}


@dataclass(frozen=True)
class Restartable:
    """An iterable that starts over at each `iter()`: a stream that training can pass over more than once."""

    start: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.start()
