"""A folder of numbered shards: each is written whole or not at all, so a run can go on after any end.

run.json          what was run: a run with other settings is refused
shards/000000.*   results of the first lines of the input, a row a line, JSON lines or Parquet
shards/README.md  beside JSON lines: types of the columns, for `datasets`
bad/000000.jsonl  lines of that shard that were refused, with the reason; there only if there are any
total.json        how many lines and shards there are; there when a process has seen the end of the input
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from hf_nmt_interp.errors import InputError

Row = dict[str, Any]
SHARD_FORMATS = ("jsonl", "parquet")


class Writer(Protocol):
    """Appends rows to a file."""

    def write(self, rows: list[Row]) -> None:
        """Append rows."""

    def close(self) -> None:
        """End the file."""


class JsonLines:
    """Rows as JSON, one a line."""

    def __init__(self, path: Path, schema: Any = None) -> None:
        self.file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, rows: list[Row]) -> None:
        """Append rows."""
        self.file.writelines(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)

    def close(self) -> None:
        """End the file."""
        self.file.close()


class Parquet:
    """Rows in columns of the schema, a row group a call."""

    def __init__(self, path: Path, schema: Any) -> None:
        from pyarrow.parquet import ParquetWriter

        self.schema, self.file = schema, ParquetWriter(path, schema)

    def write(self, rows: list[Row]) -> None:
        """Append rows."""
        from pyarrow import Table

        self.file.write_table(Table.from_pylist(rows, self.schema))

    def close(self) -> None:
        """End the file."""
        self.file.close()


WRITERS: dict[str, type[JsonLines] | type[Parquet]] = {"jsonl": JsonLines, "parquet": Parquet}


def read_rows(path: Path) -> Iterator[Row]:
    """Rows of a shard, one after the other."""
    if path.suffix == ".parquet":
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=64):
                yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8", newline="\n") as lines:
        yield from map(json.loads, lines)


@contextmanager
def written(path: Path, make: type[JsonLines] | type[Parquet], schema: Any = None) -> Iterator[Writer]:
    """A writer of a file that appears under its name when it is complete and on the disk, or never."""
    part = path.with_name(f".{path.name}.{token_hex(4)}.part")  # process ids of two machines may be the same
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: {error.strerror}; give a folder that can be written to") from error
    try:
        writer = make(part, schema)
        try:
            yield writer
        finally:
            writer.close()
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def reading(shard: Path) -> Iterator[None]:
    """Inside, a shard that cannot be read is refused in one line."""
    try:
        yield
    except (OSError, ValueError) as error:  # pyarrow's errors are of both kinds
        if isinstance(error, OSError) and error.errno:  # of the disk: the shard itself may be whole
            raise InputError(f"{shard}: {os.strerror(error.errno)}") from error
        reason = str(error).partition("\n")[0]
        raise InputError(f"{shard} is damaged ({reason}); delete it, and the same command makes it anew") from error


def _feature(kind: Any) -> Row:
    """A type of pyarrow in the words of `datasets`, whose import would cost more than all else here."""
    if hasattr(kind, "value_type"):
        inner = _feature(kind.value_type)
        return {"list": inner.get("dtype") or inner.get("struct") or inner}
    if hasattr(kind, "fields"):
        return {"struct": [{"name": field.name} | _feature(field.type) for field in kind.fields]}
    return {"dtype": {"double": "float64"}.get(str(kind), str(kind))}


class ShardFolder:
    """The shards of one run, and what was run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def about(self) -> Row:
        """What was run."""
        found = self._read("run.json", "is not a folder that --shards wrote", "shard_size")
        if found.get("shard_format") not in SHARD_FORMATS:
            raise InputError(
                f"{self.folder}: its run.json has no shard_format of {', '.join(SHARD_FORMATS)}; was it changed?"
            )
        return found

    def begin(self, about: Row, alone: bool = True) -> None:
        """Note what is run, or check that a run that goes on is the same.

        Args:
            about: what decides about the results.
            alone: no other process writes here now, so that what is half-written is left over.
        """
        for name in ("run.json", "total.json", "shards/README.md") if alone else ():
            self._remove_parts(self.folder / name)
        if not (self.folder / "run.json").exists():
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.glob("shards/*"))):
                raise InputError(f"--shards: {self.folder} is there and not of a run; give another folder")
            with written(self.folder / "run.json", JsonLines) as writer:
                writer.write([about])
        before, now = self.about, json.loads(json.dumps(about))
        for name in before | now:
            if before.get(name) != now.get(name):
                raise InputError(
                    f"--shards: {self.folder} was begun with {name} {before.get(name)!r}, now it is "
                    f"{now.get(name)!r}; give the same arguments to go on, or another folder"
                )

    def path(self, number: int) -> Path:
        """File of a shard."""
        return self.folder / "shards" / f"{number:06d}.{self.about['shard_format']}"

    def bad(self, number: int) -> Path:
        """File of the lines of a shard that were refused."""
        return self.folder / "bad" / f"{number:06d}.jsonl"

    @contextmanager
    def shard(self, number: int, schema: Any) -> Iterator[tuple[Writer, list[Row]]]:
        """A shard's writer and a list for its refused lines; both are kept if nothing is raised."""
        path = self.path(number)
        refused: list[Row] = []
        for file in (path, self.bad(number)):
            self._remove_parts(file)
        self._describe(path, schema)
        with written(path, WRITERS[path.suffix[1:]], schema) as writer:
            yield writer, refused
            if refused:  # before the shard, whose name says that all of it is done
                with written(self.bad(number), JsonLines) as bad:
                    bad.write(refused)

    def _describe(self, shard: Path, schema: Any) -> None:
        """Tell `datasets` the types of JSON lines; else it takes the first shard's, where they may be missing."""
        card = shard.with_name("README.md")
        if shard.suffix == ".jsonl" and not card.exists():
            features = [{"name": field.name} | _feature(field.type) for field in schema]
            with written(card, JsonLines) as writer:
                writer.file.write(f"---\ndataset_info: {json.dumps({'features': features})}\n---\n")  # type: ignore[attr-defined]

    def _remove_parts(self, path: Path) -> None:
        """Remove what a process that was killed has left of a file."""
        for left in path.parent.glob(f".{path.name}.*.part"):
            print(f"{left} is half-written, of a run that was cut off: removed and done again", file=sys.stderr)
            left.unlink(missing_ok=True)

    def finish(self, lines: int, shards: int) -> None:
        """Note how much there is; each process notes the same."""
        with written(self.folder / "total.json", JsonLines) as writer:
            writer.write([{"lines": lines, "shards": shards}])

    @cached_property
    def total(self) -> Row:
        """How many lines and shards there are."""
        return self._read("total.json", "is not complete: run the same command again, it goes on", "lines", "shards")

    def complete(self) -> list[Path]:
        """All shards in order; raises if one is missing."""
        paths = [self.path(number) for number in range(self.total["shards"])]
        if missing := [path.name for path in paths if not path.exists()]:
            raise InputError(
                f"{self.folder}: {len(missing)} of {len(paths)} shards are missing, the first is {missing[0]}; "
                "run the same command again, it goes on"
            )
        return paths

    def check_size(self, number: int, lines: int) -> None:
        """Raise if a shard has another number of lines than the run gave it."""
        size = self.about["shard_size"]
        if lines != (due := min(size, self.total["lines"] - number * size)):
            raise ValueError(f"{lines} of {due} lines")

    def rows(self) -> Iterator[Row]:
        """All rows in order; raises if a shard is missing, damaged or not whole."""
        for number, path in enumerate(self.complete()):
            count = 0
            with reading(path):
                for row in read_rows(path):
                    yield row
                    count += 1
                self.check_size(number, count)

    def refused(self) -> int:
        """How many lines were refused."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder.glob("bad/*.jsonl"))

    def _read(self, name: str, without: str, *fields: str) -> Row:
        """What a file notes; it has numbers in these fields."""
        try:
            found = json.loads((self.folder / name).read_text(encoding="utf-8"))
            if not isinstance(found, dict) or not all(type(found.get(field)) is int for field in fields):
                raise ValueError(f"{name} has no numbers {', '.join(fields)}")
        except (OSError, ValueError) as error:
            raise InputError(f"{self.folder} {without}") from error
        return found
