"""Batches of similar length under a token budget, the same for every process and every restart."""

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

Example = dict[str, list[int]]


def pad_batch(examples: list[Example], pad_id: int) -> dict[str, Tensor]:
    """Pad `input_ids` by `pad_id` and `labels` by -100.

    >>> pad_batch([{"input_ids": [5, 0], "labels": [7, 0]}, {"input_ids": [0], "labels": [0]}], 9)["input_ids"]
    tensor([[5, 0],
            [0, 9]])
    """

    def pad(rows: list[list[int]], value: int) -> Tensor:
        width = max(map(len, rows))
        return torch.tensor([list(row) + [value] * (width - len(row)) for row in rows])

    input_ids = pad([e["input_ids"] for e in examples], pad_id)
    mask = pad([[1] * len(e["input_ids"]) for e in examples], 0)
    return {"input_ids": input_ids, "attention_mask": mask, "labels": pad([e["labels"] for e in examples], -100)}


def cut_by_tokens(sizes: list[tuple[int, int]], budget: int) -> Iterator[slice]:
    """Cut a list of (source, target) sizes into runs whose padded sides hold at most `budget` tokens each.

    >>> list(cut_by_tokens([(2, 3), (3, 3), (9, 4)], budget=6))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    start, widest = 0, 0
    for i, size in enumerate(sizes):
        widest = max(widest, *size)
        if i > start and widest * (i + 1 - start) > budget:
            yield slice(start, i)
            start, widest = i, max(size)
    if start < len(sizes):
        yield slice(start, len(sizes))


class TokenBatches(IterableDataset):
    """Batches of at most `budget` padded tokens a side, shuffled anew each epoch, dealt out to `world` processes.

    Where the batches are cut depends on the lengths only, so every epoch has equally many.

    Args:
        examples: a list, or any iterable that starts over at each `iter()` (streaming data sets).
        collate: turns a list of examples into a batch.
        budget: most tokens of a padded batch, on the source and on the target side each.
        window: how many examples of a stream are sorted at a time.
    """

    def __init__(
        self, examples: Iterable[Example], collate, budget: int, *, seed=0, rank=0, world=1, window=50_000
    ) -> None:
        self.examples, self.collate, self.budget, self.window = examples, collate, budget, window
        self.seed, self.rank, self.world, self.epoch = seed, rank, world, 0
        self._length = self._count() if isinstance(examples, Sized) else None

    def _count(self) -> int:
        sizes = sorted((len(e["labels"]), len(e["input_ids"])) for e in self.examples)
        return sum(1 for _ in cut_by_tokens(sizes, self.budget)) // self.world

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("a stream has no length")
        return self._length

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def _windows(self) -> Iterator[list[Example]]:
        if self._length is not None:
            yield list(self.examples)
        else:
            stream = iter(self.examples)
            while chunk := list(islice(stream, self.window)):
                yield chunk

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rng = Random(f"{self.seed}-{self.epoch}")
        for examples in self._windows():
            rng.shuffle(examples)  # examples of the same sizes meet others in each epoch
            examples.sort(key=lambda e: (len(e["labels"]), len(e["input_ids"])))
            sizes = [(len(e["labels"]), len(e["input_ids"])) for e in examples]
            batches = list(cut_by_tokens(sizes, self.budget))
            rng.shuffle(batches)
            for i in range(self.rank, len(batches) // self.world * self.world, self.world):
                yield self.collate(examples[batches[i]])
