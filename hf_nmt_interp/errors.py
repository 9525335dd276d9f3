"""Errors whose cause is the caller's input."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class InputError(ValueError):
    """Bad user input, in parts; printed as one line, `argument: value problem; remedy`.

    Args:
        argument: the bad input: an argument, a flag or a file.
        value: its value; None if there is nothing to show.
        problem: what is wrong with it.
        remedy: what to do about it.
        row: index of the sentence or line in the input, from 0.

    >>> print(InputError("batch_size", 0, "must be at least 1", "the default is 16"))
    batch_size: 0 must be at least 1; the default is 16
    >>> print(InputError("sources", None, "has no words", "leave it out", row=3))
    sources[3]: has no words; leave it out
    """

    def __init__(self, argument: str, value: Any, problem: str, remedy: str = "", row: int | None = None) -> None:
        super().__init__(argument, value, problem, remedy, row)
        self.argument, self.value, self.problem, self.remedy, self.row = argument, value, problem, remedy, row

    def __str__(self) -> str:
        where = self.argument if self.row is None else f"{self.argument}[{self.row}]"
        shown = "" if self.value is None else f"{self.value!r} "
        return f"{where}: {shown}{self.problem}" + (f"; {self.remedy}" if self.remedy else "")

    def at(self, **parts: Any) -> "InputError":
        """A copy with other parts.

        >>> print(InputError("sources", None, "has no words", "leave it out", row=3).at(argument="line 4", row=None))
        line 4: has no words; leave it out
        """
        names = ("argument", "value", "problem", "remedy", "row")
        return type(self)(**dict(zip(names, self.args, strict=True)) | parts)


@contextmanager
def rows_among(numbers: Sequence[int]) -> Iterator[None]:
    """Context for processing some rows: row numbers of errors raised inside refer to the whole list outside."""
    try:
        yield
    except InputError as error:
        raise error if error.row is None else error.at(row=numbers[error.row]) from error


def install(extra: str) -> str:
    """The remedy for a missing package of an extra.

    >>> print(install("words"))
    pip install -c constraints.txt -e ".[words]"
    """
    return f'pip install -c constraints.txt -e ".[{extra}]"'


def printable(text: str) -> str:
    r"""Text in one line without control characters, which could control a terminal.

    >>> print(printable("weights \x1b[2J of\n two lines"))
    weights \x1b[2J of two lines
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))


def check_choice(argument: str, value: Any, known: Iterable[str], remedy: str = "") -> None:
    """Raise if a value is not one of the known ones.

    >>> check_choice("ties", "last", ["first", "mean"])
    Traceback (most recent call last):
    hf_nmt_interp.errors.InputError: ties: 'last' is not one of first, mean
    """
    if value not in (known := list(known)):
        value = value[:80] if isinstance(value, str) else value
        raise InputError(argument, value, f"is not one of {', '.join(known)}", remedy)
