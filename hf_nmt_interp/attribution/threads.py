"""Runs the work of one explanation on several threads, each with its own operations.

Explanations are thousands of small operations. Splitting each of them over threads gains little, and is slow if
another process keeps a core busy; therefore each thread gets whole sentences, tokens or heads.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
Found = TypeVar("Found")
_POOL: ContextVar[tuple[int, ThreadPoolExecutor] | None] = ContextVar("pool", default=None)
_COUNTING = threading.Lock()
_INSIDE: list[int] = []  # number of threads of every context that is open, in any thread


@contextmanager
def workers(device: torch.device) -> Iterator[None]:
    """Context in which `side_by_side` uses `torch.get_num_threads()` threads, and each torch operation one.

    Restores the number of threads. On devices other than the CPU, and inside another such context, it does
    nothing.
    """
    if device.type != "cpu" or _POOL.get():
        yield
        return
    with _COUNTING:
        count = torch.get_num_threads()
        if count == 1 and _INSIDE:  # a thread that was created while another one was in this context
            count = max(_INSIDE)
        _INSIDE.append(count)
    # new threads start with the number that any thread set last
    torch.set_num_threads(1)
    try:
        if count == 1:
            yield
            return
        with ThreadPoolExecutor(count - 1, "hf_nmt_interp") as pool:
            token = _POOL.set((count, pool))
            try:
                yield
            finally:
                _POOL.reset(token)
    finally:
        with _COUNTING:
            _INSIDE.remove(count)
            torch.set_num_threads(count)


def thread_count() -> int:
    """How many threads `side_by_side` uses here."""
    pool = _POOL.get()
    return pool[0] if pool else 1


def side_by_side(work: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
    """`[work(item) for item in items]` on the threads of `workers`, in the caller's gradient mode."""
    items, pool = list(items), _POOL.get()
    if not pool or len(items) < 2:
        return [work(item) for item in items]
    modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    left = iter(enumerate(items))  # one for all threads: each takes the next item
    found: dict[int, Found] = {}

    def run() -> None:
        with torch.inference_mode(modes[0]), torch.set_grad_enabled(modes[1]):
            try:
                for number, item in left:
                    found[number] = work(item)
            except BaseException:
                deque(left, 0)  # the other threads stop after their current item
                raise

    futures = [pool[1].submit(run) for _ in range(min(pool[0], len(items)) - 1)]
    token = _POOL.set(None)  # the caller also works; nested calls are not divided again
    try:
        run()
    finally:
        _POOL.reset(token)
        wait(futures)
    for future in futures:
        future.result()  # raises the thread's exception
    return [found[number] for number in range(len(items))]


def shares(length: int) -> list[slice]:
    """0 to length - 1 in one slice per thread, each with every n-th index.

    >>> shares(3)
    [slice(0, None, 1)]
    """
    count = min(thread_count(), length)
    return [slice(start, None, count) for start in range(count)]


def interleave(pieces: Sequence[Tensor]) -> Tensor:
    """The rows [B, ...] from pieces that contain every n-th row, see `shares`.

    >>> interleave([torch.tensor([0, 2]), torch.tensor([1])])
    tensor([0, 1, 2])
    """
    if len(pieces) == 1:
        return pieces[0]
    found = pieces[0].new_empty(sum(map(len, pieces)), *pieces[0].shape[1:])
    for first, piece in enumerate(pieces):
        found[first :: len(pieces)] = piece
    return found
