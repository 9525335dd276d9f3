"""Progress of long loops: `track` counts their items, and `progress_bars` shows them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from hf_nmt_interp.errors import InputError

T = TypeVar("T")
_SOON = 1.0  # seconds after which a bar appears
_LONG = 30.0  # seconds of work from which an estimate is printed
_FEW = 4  # fewer items than this get no estimate


class _Screen:
    """Where bars are drawn, and the bars of the running loops."""

    console: Any = None
    bars: Any = None


@contextmanager
def progress_bars() -> Iterator[None]:
    """Context that shows progress bars on stderr, if it is a terminal, and estimates for slow methods.

    >>> with progress_bars():
    ...     list(track([3, 4], "Counting"))
    [3, 4]
    """
    from rich.console import Console

    console, before = Console(stderr=True), _Screen.console
    _Screen.console = console if console.is_terminal or console.is_jupyter else None
    try:
        yield
    finally:
        _Screen.console = before
        if _Screen.bars is not None:  # left by a loop that raised an error
            _Screen.bars.stop()
            _Screen.bars = None


def track(items: Sequence[T], label: str) -> Iterator[T]:
    """Iterate over items with a bar that counts them, or their elements if they are lists."""
    sizes = [len(item) if isinstance(item, Sequence) and not isinstance(item, str) else 1 for item in items]
    with counting(label, sum(sizes)) as advance:
        for item, size in zip(items, sizes, strict=True):
            yield item
            advance(size)


@contextmanager
def counting(label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar that appears after a second; yields a function to call with the number of items just done."""
    if _Screen.console is None:
        yield lambda done: None
        return
    is_outer = _Screen.bars is None
    bars = _Screen.bars = _Screen.bars or _make_bars(_Screen.console)
    task = bars.add_task(label, total=total)
    try:
        yield lambda done: bars.advance(task, done)
    finally:
        bars.remove_task(task)
        if is_outer:
            bars.stop()
            _Screen.bars = None


def estimate(what: str, once: Callable[[], Any], count: int) -> None:
    """Print how long `count` runs of `once` will take, if bars are shown and it takes long.

    Prints nothing inside a loop that has a bar.
    """
    if _Screen.console is None or _Screen.bars is not None or count < _FEW:
        return
    seconds = float("inf")
    with suppress(InputError), counting(f"Timing: {what}"):  # the work itself reports errors
        for _ in range(2):  # the first run includes preparations
            start = time.monotonic()
            once()
            seconds = min(seconds, time.monotonic() - start)
            if seconds * count < _LONG:
                return
        text = f"{what}: about {_duration(seconds * count)} for {count:,} sentences"
        _Screen.console.print(text, style="dim", highlight=False, markup=False)


def _duration(seconds: float) -> str:
    """An approximate duration as text.

    >>> _duration(40), _duration(100), _duration(5400)
    ('40 s', '2 min', '1.5 h')
    """
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.1f} h"


def _make_bars(console: Any) -> Any:
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    class Bars(Progress):
        """Bars of loops that take longer than a moment."""

        def get_renderables(self) -> Iterator[Any]:
            yield self.make_tasks_table([task for task in self.tasks if (task.elapsed or 0) > _SOON])

    columns = *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    # leave stdout to the caller: rich would redirect it to stderr
    bars = Bars(*columns, console=console, transient=True, redirect_stdout=False)
    bars.start()
    return bars
