"""Batches of similar length under a token budget, reproducible across processes and restarts."""

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from random import Random
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from hf_nmt_interp.decoding.batch import Translation, collate
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import Example


def pad_batch(examples: list[Example], pad_id: int) -> dict[str, Tensor]:
    """Pad `input_ids` with `pad_id` and `labels` with -100.

    >>> pad_batch([{"input_ids": [5, 0], "labels": [7, 0]}, {"input_ids": [0], "labels": [0]}], 9)["input_ids"]
    tensor([[5, 0],
            [0, 9]])
    """
    return collate([Translation(e["input_ids"], e["labels"]) for e in examples], pad_id)


def cut_by_tokens(sizes: list[tuple[int, int]], budget: int) -> Iterator[slice]:
    """Cut a list of (target, source) sizes into runs whose padded sides hold at most `budget` tokens each.

    A pair longer than the budget gets its own run.

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
    """Batches of at most `budget` padded tokens per side, shuffled each epoch and distributed to `world` processes.

    How a list is cut into batches depends only on the lengths, so every epoch has the same number of batches. Each
    example occurs once per epoch, except in up to `world - 1` leftover batches, which differ between epochs.
    A pair longer than the budget gets its own batch. A stream never ends: it is read repeatedly. The
    batches of an epoch depend only on seed, epoch and budget.
    """

    def __init__(
        self,
        examples: Iterable[Example],  # a list, or anything that starts over at each `iter()` (streaming data sets)
        collate: Callable[[list[Example]], Any],  # turns examples into a batch
        budget: int,  # maximum tokens of a padded batch, per side
        *,
        seed: int = 0,  # for the order
        rank: int = 0,  # number of this process
        world: int = 1,  # number of processes; process r gets batches r, r + world, ...
        window: int = 50_000,  # examples of a stream that are sorted at a time
    ) -> None:
        self.examples, self.collate, self.budget, self.window = examples, collate, budget, window
        self.seed, self.rank, self.world, self.epoch = seed, rank, world, 0
        self._length = self._count() if isinstance(examples, Sized) else None

    def _count(self) -> int:
        batches = sum(1 for _ in cut_by_tokens(sorted(map(sizes_of, self.examples)), self.budget))
        if batches < self.world:
            problem = f"fill only {batches} batches of {self.budget} tokens for {self.world} process(es)"
            raise InputError("examples", None, problem, "give more examples or a smaller budget")
        return batches // self.world

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("a stream has no length")
        return self._length

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def _windows(self) -> Iterator[list[Example]]:
        if self._length is not None:
            yield list(self.examples)
            return
        while True:
            stream = iter(self.examples)
            chunk = list(islice(stream, self.window))
            if not chunk:
                raise InputError("examples", None, "the stream is empty", "check the data and max_length")
            while chunk:
                yield chunk
                chunk = list(islice(stream, self.window))

    def _batches(self) -> Iterator[list[Example]]:
        """Batches of all processes."""
        rng = Random(f"{self.seed}-{self.epoch}")
        for examples in self._windows():
            rng.shuffle(examples)  # examples of the same size are mixed differently in each epoch
            examples.sort(key=sizes_of)
            cuts = list(cut_by_tokens(list(map(sizes_of, examples)), self.budget))
            rng.shuffle(cuts)
            for cut in cuts:
                yield examples[cut]

    def __iter__(self) -> Iterator[Any]:
        for number, dealt in enumerate(zip(*[self._batches()] * self.world, strict=False)):  # one for each process
            if hasattr(self.collate, "reseed"):  # its noise must not depend on where a run was resumed
                self.collate.reseed(f"{self.seed}-{self.epoch}-{number}-{self.rank}")
            yield self.collate(dealt[self.rank])


def sizes_of(example: Example) -> tuple[int, int]:
    """Tokens of target and source."""
    return len(example["labels"]), len(example["input_ids"])
