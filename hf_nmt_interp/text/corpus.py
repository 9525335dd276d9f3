"""Parallel text as an iterator of (source, target) pairs: line-parallel files, JSON lines, datasets.

Nothing is read ahead, so corpora of any size fit; an error names the file and the line.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

from hf_nmt_interp.errors import InputError

Pair = tuple[str, str]
Example = dict[str, list[int]]  # input_ids and labels of one sentence pair
Texts = tuple[str, ...]
Line = Texts | InputError  # the same line of all files, or its error
_LONGEST = 10**7  # maximum bytes of a line
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")  # NUL and lone surrogates


class LineError(InputError):
    """A line of a file or a row of a dataset that cannot be read; `argument` is e.g. `train.en, line 3`."""


class MissingField(LineError):
    """A row has no field with that name."""


class MissingLine(LineError):
    """A file has fewer lines than another."""


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Lines of a UTF-8 file (`-` is stdin), split on "\n" or "\r\n", without line ends and byte order mark."""
    for line in try_parallel([str(path)]):
        if isinstance(line, InputError):
            raise line
        yield line[0]


def open_lines(path: str | Path) -> BinaryIO:
    """The open file, which iterates over raw lines."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(str(path), None, error.strerror or str(error)) from error


def try_lines(file: BinaryIO, path: str | Path) -> Iterator[str | InputError]:
    """Lines of text like `read_lines`; yields an error for a line that is not text, so reading can continue."""
    for number, raw in enumerate(iter(lambda: file.readline(_LONGEST + 1), b""), 1):
        where = f"{path}, line {number}"
        if len(raw) > _LONGEST:
            raise LineError(where, None, f"more than {_LONGEST:,} bytes", "is this a text file?")
        try:
            line = raw.removesuffix(b"\r\n").removesuffix(b"\n").decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            problem = f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8"
            yield LineError(where, None, problem, "convert the file first")
            continue
        yield LineError(where, None, "NUL character", "is this a text file?") if "\0" in line else line


def try_parallel(paths: Sequence[str]) -> Iterator[Line]:
    """Parallel lines of several files (`-` is stdin); yields an error for a line that is invalid or missing."""
    if list(paths).count("-") > 1:
        raise InputError("-", None, "only one of the files can be stdin", "give the name of the other")
    if "-" in paths and sys.stdin is None:
        raise InputError("-", None, "stdin is closed", "give a file")
    with ExitStack() as stack:
        files = [sys.stdin.buffer if path == "-" else stack.enter_context(open_lines(path)) for path in paths]
        names = ["stdin" if path == "-" else path for path in paths]
        for number, parts in enumerate(zip_longest(*map(try_lines, files, names)), 1):
            if None in parts:
                where = f"{names[parts.index(None)]}, line {number}"
                yield MissingLine(where, None, "missing", "the files must have the same number of lines")
            else:
                errors = [part for part in parts if isinstance(part, InputError)]
                yield errors[0] if errors else cast(Texts, parts)


def read_pairs(*paths: str | Path, source: str = "source", target: str = "target") -> Iterator[Pair]:
    """Pairs of two line-parallel text files (`read_parallel`) or of one JSONL file (`read_jsonl`)."""
    if len(paths) == 2:
        return read_parallel(*paths)
    if len(paths) == 1:
        return read_jsonl(*paths, source=source, target=target)
    raise InputError("paths", len(paths), "files", "give two text files or one JSONL file")


def read_parallel(source: str | Path, target: str | Path) -> Iterator[Pair]:
    """Pairs of two line-parallel files."""
    for number, pair in enumerate(zip_longest(read_lines(source), read_lines(target)), 1):
        if None in pair:
            short, long = (source, target) if pair[0] is None else (target, source)
            raise LineError(f"{short}, line {number}", None, "missing", f"the parallel {long} has more lines")
        yield pair


def read_jsonl(path: str | Path, source: str = "source", target: str = "target") -> Iterator[Pair]:
    """Pairs of a file with one JSON object in each line; empty lines are skipped.

    Args:
        path: e.g. lines like `{"source": "A dog.", "target": "Ein Hund."}` or, with `source="en", target="de"`,
            `{"translation": {"en": "A dog.", "de": "Ein Hund."}}`.
        source: field of the source sentence, in the object or in its `translation`.
        target: field of the target sentence.
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield cast(Pair, _texts(_json(line, where), (source, target), where))


def read_dataset(
    dataset: str | Path | Iterable[Mapping[str, Any]],
    source: str = "source",
    target: str = "target",
    *,
    config: str | None = None,
    split: str = "train",
    streaming: bool = False,
) -> Iterator[Pair]:
    """Pairs of a dataset.

    Args:
        dataset: a loaded dataset or any rows; or a Hub id, a folder with data files or one written by `save_to_disk`.
        source: column of the source sentence, or key in the column `translation`.
        target: column of the target sentence, or key in the column `translation`.
        config: name of the configuration to load, e.g. `de-en`.
        split: which split to load, e.g. `train` or `train[:1000]`.
        streaming: whether to read it over the network while iterating instead of downloading it first.
    """
    name = str(dataset) if isinstance(dataset, str | Path) else "dataset"
    rows = load_rows(name, config, split, streaming) if isinstance(dataset, str | Path) else dataset
    for number, row in enumerate(rows, 1):
        yield cast(Pair, _texts(row, (source, target), f"{name}, row {number}"))


def try_dataset(name: str, fields: Sequence[str], *, config: str | None, split: str) -> Iterator[Line]:
    """Texts of a dataset as in `read_dataset`, or of a .jsonl, .parquet or .csv file, read while iterating.

    Yields an error for a row without the fields; the first row must have them.
    """
    # JSON is read line by line: a broken line does not affect others
    with open_lines(name) if name.endswith(".jsonl") else nullcontext() as file:
        rows: Iterable[Any] = try_lines(file, name) if file else load_rows(name, config, split, streaming=True)
        for number, row in enumerate(rows, 1):
            try:
                if isinstance(row, InputError):
                    raise row
                found = _json(row, f"{name}, line {number}") if file else row
                yield _texts(found, fields, f"{name}, row {number}")
            except InputError as error:
                if number == 1 and isinstance(error, MissingField):
                    raise
                yield error


def _json(line: str, where: str) -> Any:
    """The value of a line of JSON."""
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise LineError(where, None, f"not JSON ({error.msg} at column {error.colno})") from error
    except (ValueError, RecursionError) as error:  # a number or nesting that Python cannot parse
        raise LineError(where, None, f"not JSON ({error})") from error


def load_rows(name: str, config: str | None, split: str, streaming: bool) -> Iterator[Mapping[str, Any]]:
    """Rows of a dataset; for `name` see `read_dataset` and `try_dataset`."""
    import datasets  # heavy

    readers = logging.getLogger("datasets.packaged_modules")  # they also log the errors they raise
    level = readers.level
    readers.setLevel(logging.CRITICAL)
    try:
        yield from _load(name, config, split, streaming)  # a stream may fail in the middle
    except (KeyError, ValueError, OSError, datasets.exceptions.DatasetsError) as error:
        what, reason = f"{name} (config {config}, split {split})", str(error).strip().split("\n")[0]
        raise InputError("dataset", None, f"{what} cannot be loaded: {reason}") from error
    finally:
        readers.setLevel(level)


def _load(name: str, config: str | None, split: str, streaming: bool) -> Iterable[Mapping[str, Any]]:
    import datasets

    kinds = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json"}
    if (kind := kinds.get(Path(name).suffix)) and Path(name).is_file():
        return datasets.load_dataset(kind, data_files=name, split=split, streaming=streaming)
    if (Path(name) / "dataset_dict.json").exists():
        return datasets.load_from_disk(name)[split]
    if (Path(name) / "state.json").exists():
        if split != "train":  # otherwise training data could be used as validation data
            raise ValueError("it was saved as one dataset without splits; use train, or save a DatasetDict")
        return datasets.load_from_disk(name)
    return datasets.load_dataset(name, config, split=split, streaming=streaming)


def _texts(row: Any, fields: Sequence[str], where: str) -> Texts:
    """The texts of a row in these fields."""
    if not isinstance(row, Mapping):
        raise LineError(where, str(row)[:80], "has no fields")
    found = row["translation"] if isinstance(row.get("translation"), Mapping) else row
    if missing := [field for field in fields if field not in found]:
        raise MissingField(where, None, f"no field {missing[0]!r}", f"it has {', '.join(map(repr, found))}")
    for field in fields:
        if not isinstance(found[field], str):
            raise LineError(where, None, f"field {field!r} is {found[field]!r}, not a string")
        if wrong := _NOT_TEXT.search(found[field]):
            raise LineError(where, None, f"field {field!r} has {wrong[0]!r}, which is not a valid character")
    return tuple(found[field] for field in fields)
