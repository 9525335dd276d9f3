"""Base of the signals: a number that says how suspicious the translation of a sentence pair is."""

from abc import ABC, abstractmethod
from typing import ClassVar

from hf_nmt_interp.analysis.signals.reading import Reading


class Signal(ABC):
    """A number about a sentence pair. To add one: subclass, and add the class to `SIGNALS`.

    Attributes:
        name: the name that users choose it by.
        passes: names in `PASSES` of what it reads.
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
        """Its value; defined for pairs without words too."""
