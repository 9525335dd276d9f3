"""What every signal is: a number about a sentence pair that says how suspicious its translation is."""

from abc import ABC, abstractmethod
from typing import ClassVar

from hf_nmt_interp.analysis.signals.reading import Reading


class Signal(ABC):
    """A number about a sentence pair. To add one: subclass, and add the class to `SIGNALS`.

    Attributes:
        name: by which users choose it.
        passes: names in `PASSES` of what it reads.
        rises: whether larger values are more suspicious; of most signals smaller ones are.
        on_request: whether it is left out unless asked for, because its passes are slow.
    """

    name: ClassVar[str]
    passes: ClassVar[tuple[str, ...]]
    rises: ClassVar[bool] = False
    on_request: ClassVar[bool] = False

    @staticmethod
    @abstractmethod
    def score(reading: Reading) -> float:
        """Its value; a pair without words has one, too."""
