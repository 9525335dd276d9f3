"""How long work shows its progress: one protocol for the whole library."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Track = Callable[[Sequence[Any], str], Iterable[Any]]  # items and a label -> the items, as `rich.progress.track`


def untracked(items: Sequence[Any], label: str) -> Iterable[Any]:
    """The default `Track`: shows nothing."""
    return items
