"""Token batches: nothing lost, nothing twice, the budget kept, the same for every restart."""

from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.batching import TokenBatches, cut_by_tokens, pad_batch
from hf_nmt_interp.training.data import Restartable

SIZES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=60)


def examples_of(sizes):
    """Examples whose first ids tell which they are."""
    return [{"input_ids": [i] * source, "labels": [i] * target} for i, (source, target) in enumerate(sizes)]


def numbers(batches):
    return [[example["labels"][0] for example in batch] for batch in batches]


def flat(batches):
    return [number for batch in batches for number in batch]


def make(sizes, budget, **options):
    return TokenBatches(examples_of(sizes), list, budget, **options)


def padded(batch):
    return len(batch) * max(max(len(e["input_ids"]), len(e["labels"])) for e in batch)


@settings(deadline=None, max_examples=50)
@given(SIZES, st.integers(1, 40))
def test_cuts_cover_the_list_and_keep_the_budget(sizes, budget):
    cuts = list(cut_by_tokens(sizes, budget))
    assert [i for cut in cuts for i in range(len(sizes))[cut]] == list(range(len(sizes)))
    for cut in cuts:
        run = sizes[cut]
        assert len(run) == 1 or len(run) * max(map(max, run)) <= budget


@settings(deadline=None, max_examples=50)
@given(SIZES, st.integers(8, 40), st.integers(0, 3))
def test_an_epoch_has_every_example_once(sizes, budget, epoch):
    batches = make(sizes, budget)
    batches.set_epoch(epoch)
    found = list(batches)
    assert sorted(flat(numbers(found))) == list(range(len(sizes)))
    assert len(found) == len(batches)
    assert all(len(batch) == 1 or padded(batch) <= budget for batch in found)


@settings(deadline=None, max_examples=50)
@given(SIZES, st.integers(1, 4), st.integers(0, 2))
def test_processes_share_an_epoch(sizes, world, epoch):
    alone = make(sizes, 12)
    alone.set_epoch(epoch)
    everything = numbers(alone)
    if len(everything) < world:
        with pytest.raises(InputError, match="give more examples or a smaller budget"):
            make(sizes, 12, world=world)
        return
    shares = []
    for rank in range(world):
        mine = make(sizes, 12, rank=rank, world=world)
        mine.set_epoch(epoch)
        shares.append(numbers(mine))
        assert len(shares[-1]) == len(mine) == len(everything) // world
    dealt = [batch for step in zip(*shares, strict=True) for batch in step]
    assert dealt == everything[: len(dealt)]  # in turn, as one process would see them


def test_epochs_and_seeds_differ_and_repeat():
    sizes = [(3 + i % 5, 4 + i % 3) for i in range(60)]

    def order(seed, epoch):
        batches = make(sizes, 24, seed=seed)
        batches.set_epoch(epoch)
        return numbers(batches)

    assert order(0, 0) == order(0, 0)
    runs = [order(0, 0), order(0, 1), order(1, 0), order(1, 1)]
    assert len({str(run) for run in runs}) == 4
    assert len({str(sorted(map(sorted, run))) for run in runs}) == 4  # other batches, not only another order
    assert len({len(run) for run in runs}) == 1


def test_an_example_over_the_budget_is_a_batch_of_its_own():
    batches = numbers(make([(2, 2), (50, 3), (2, 2), (3, 90)], 10))
    assert [1] in batches
    assert [3] in batches
    assert sorted(flat(batches)) == [0, 1, 2, 3]


def test_a_stream_is_read_in_windows_again_and_again():
    examples, passes = examples_of([(3, 3)] * 10), []

    def start():
        passes.append(len(passes))
        return iter(examples)

    batches = TokenBatches(Restartable(start), list, 6, window=4)
    with pytest.raises(TypeError, match="no length"):
        len(batches)
    found = numbers(islice(batches, 15))  # 5 batches of 2 in each pass
    assert sorted(flat(found[:2])) == [0, 1, 2, 3]
    assert sorted(flat(found[2:4])) == [4, 5, 6, 7]
    assert sorted(flat(found[4:5])) == [8, 9]
    assert [sorted(flat(found[i : i + 5])) for i in (0, 5, 10)] == [list(range(10))] * 3
    assert found[:5] != found[5:10]
    assert passes == [0, 1, 2]
    again = TokenBatches(Restartable(lambda: iter(examples)), list, 6, window=4)
    assert numbers(islice(again, 15)) == found


def test_processes_share_a_stream():
    stream = Restartable(lambda: iter(examples_of([(3, 3)] * 10)))
    everything = numbers(islice(TokenBatches(stream, list, 6, window=4), 20))
    for rank in range(2):
        mine = TokenBatches(stream, list, 6, window=4, rank=rank, world=2)
        assert numbers(islice(mine, 10)) == everything[rank::2]


def test_empty_data_is_refused():
    with pytest.raises(InputError, match="examples: fill only 0 batches"):
        make([], 10)
    with pytest.raises(InputError, match="the stream is empty"):
        next(iter(TokenBatches(Restartable(lambda: iter([])), list, 10)))


def test_padding():
    batch = pad_batch([{"input_ids": [4, 5, 0], "labels": [6, 0]}, {"input_ids": [0], "labels": [7, 8, 9, 0]}], 3)
    assert {name: tensor.tolist() for name, tensor in batch.items()} == {
        "input_ids": [[4, 5, 0], [0, 3, 3]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "labels": [[6, 0, -100, -100], [7, 8, 9, 0]],
    }
    assert all(tensor.dtype == torch.long for tensor in batch.values())
