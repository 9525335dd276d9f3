"""Shared by reports and studies: sentence pairs and files."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tables import csv_text


def sentence_pairs(model: Any, tokenizer: Any, sources: Any, targets: Any, batch_size: int) -> Pairs:
    """Sentences and their translations; the model translates if `targets` is None."""
    if isinstance(sources, str) or not sources:
        raise InputError("sources", None, f"expected a list of sentences, got {sources!r}")
    return Pairs.make(model, tokenizer, sources, targets, batch_size=batch_size)


class Report:
    """Base of dataclasses that can be saved to files and loaded."""

    title: ClassVar[str]  # description for errors
    writer: ClassVar[str] = "its method save"  # origin, for errors
    columns: ClassVar[Sequence[str] | None] = None  # of its CSV; None for those of the first row
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def table(self) -> list[dict[str, Any]]:
        """The rows of its CSV."""
        raise NotImplementedError

    def to_json(self) -> str:
        """The report as a JSON object."""
        return json.dumps(vars(self), indent=1, ensure_ascii=False, allow_nan=False, default=np.ndarray.tolist)

    def to_csv(self) -> str:
        """The rows of `table`, with a header."""
        return csv_text(self.table(), self.columns)

    def save(self, path: str | Path) -> None:
        """Write the report as `.json`, or the rows of `table` as `.csv`."""
        write = {".json": self.to_json, ".csv": self.to_csv}.get(Path(path).suffix)
        if write is None:
            raise InputError("path", str(path), "must end in .json or .csv")
        Path(path).write_text(write(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote as JSON."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            known = {field.name: found[field.name] for field in fields(cls) if field.name in found}
            if not all(isinstance(value, list | dict) for value in known.values()):
                raise TypeError
            return cls(**known)
        except (OSError, ValueError, TypeError) as error:
            problem = f"is not a {cls.title} in JSON ({type(error).__name__})"
            raise InputError("path", str(path), problem, f"{cls.writer} writes one") from error
