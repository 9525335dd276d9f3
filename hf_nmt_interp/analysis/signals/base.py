"""Base class of signals: numbers that show how suspicious the translation of a sentence pair is."""

from abc import ABC, abstractmethod
from typing import ClassVar

from hf_nmt_interp.analysis.signals.reading import Reading


class Signal(ABC):
    """A number about a sentence pair. To add one: subclass, and add the class to `SIGNALS`.

    Attributes:
        name: the name that users select it by.
        passes: names of the `PASSES` that it needs.
        rises: whether larger values are more suspicious; for most signals smaller ones are.
        on_request: whether it is left out unless asked for, because its passes are slow.
    """

    name: ClassVar[str]
    passes: ClassVar[tuple[str, ...]]
    rises: ClassVar[bool] = False
    on_request: ClassVar[bool] = False

    @staticmethod
    @abstractmethod
    def score(reading: Reading) -> float:
        """The value; also defined for pairs without words."""
