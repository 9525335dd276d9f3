"""A folder of numbered shards: each is written completely or not at all, so a run can be resumed.

run.json          settings of the run; a run with other settings is refused
shards/000000.*   results of the first lines of the input, one row per line, JSON lines or Parquet
shards/README.md  beside JSON lines: column types, for `datasets`
sums/000000.json  its run, lines and checksum: `merge` refuses a shard that was changed or moved
bad/000000.jsonl  lines of that shard that were skipped, with the reason, if there are any
total.json        how many lines and shards there are, once a process has seen the end of the input
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property
from glob import escape
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.files import atomic, write_whole
from hf_nmt_interp.text.fingerprints import changes, file_fingerprint
from hf_nmt_interp.text.locks import LOCK, locked

Row = dict[str, Any]


class JsonLines:
    """Rows as JSON, one per line."""

    def __init__(self, path: Path, schema: Any = None) -> None:
        self.file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, rows: list[Row]) -> None:
        self.file.writelines(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


class Parquet:
    """Rows in columns of the schema, one row group per call."""

    def __init__(self, path: Path, schema: Any) -> None:
        from pyarrow.parquet import ParquetWriter

        self.schema, self.file = schema, ParquetWriter(path, schema)

    def write(self, rows: list[Row]) -> None:
        from pyarrow import Table

        self.file.write_table(Table.from_pylist(rows, self.schema))


Writer = JsonLines | Parquet
W = TypeVar("W", JsonLines, Parquet, Writer)
WRITERS: dict[str, type[Writer]] = {"jsonl": JsonLines, "parquet": Parquet}
SHARD_FORMATS = tuple(WRITERS)


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
def written(path: Path, make: type[W], schema: Any = None) -> Iterator[W]:
    """A writer of a file that gets its name only when it is complete."""
    with atomic(path, shared=True) as part, closing((writer := make(part, schema)).file):
        yield writer


def remove_parts(path: Path) -> None:
    """Remove incomplete versions of a shared file written by `atomic`, left by a killed process."""
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}.part"):
        print(f"{left} is incomplete because its run was killed; it is removed and written again", file=sys.stderr)
        left.unlink(missing_ok=True)


@contextmanager
def reading(shard: Path) -> Iterator[None]:
    """Context that turns read errors into errors that name the shard."""
    try:
        yield
    except (OSError, ValueError) as error:  # pyarrow's errors are of both kinds
        if isinstance(error, OSError) and error.errno:  # a disk error: the shard itself may be intact
            raise InputError(str(shard), None, os.strerror(error.errno)) from error
        reason, _, _ = str(error).partition("\n")
        remedy = "delete it and run the same command again"
        raise InputError(str(shard), None, f"is damaged ({reason})", remedy) from error


def _feature(kind: Any) -> Row:
    """A pyarrow type as `datasets` names it, without importing `datasets`, which is slow."""
    if hasattr(kind, "value_type"):
        inner = _feature(kind.value_type)
        return {"list": inner.get("dtype") or inner.get("struct") or inner}
    if hasattr(kind, "fields"):
        return {"struct": [{"name": field.name} | _feature(field.type) for field in kind.fields]}
    return {"dtype": {"double": "float64"}.get(str(kind), str(kind))}


class ShardFolder:
    """The shards of one run, from `--shards`, or from `--output` (that folder is removed at the end)."""

    def __init__(self, folder: str | Path, flag: str = "--shards") -> None:
        self.folder, self.flag = Path(folder), flag

    def locked(self, rank: int = 0) -> AbstractContextManager[None]:
        """Context that locks this folder against other runs; each process of a run has a separate lock."""
        return locked(self.folder, self.flag, LOCK + (f"-{rank}" if rank else ""))

    @cached_property
    def about(self) -> Row:
        """The settings of the run."""
        found = self._read("run.json", ["shard_size"], "is not a folder that --shards wrote")
        if found.get("shard_format") not in SHARD_FORMATS:
            raise InputError(str(self.folder), None, f"its run.json has no shard_format of {', '.join(SHARD_FORMATS)}")
        return found

    def begin(self, about: Row, alone: bool = True) -> None:
        """Store what the results depend on, or check that it is unchanged; if `alone`, remove incomplete files."""
        for name in ("run.json", "total.json", "shards/README.md") if alone else ():
            remove_parts(self.folder / name)
        if not (self.folder / "run.json").exists():
            others = "shards/*" if self.flag == "--shards" else "[!.]*"
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.glob(others))):
                problem = f"{self.folder} exists but was not created by {self.flag}"
                raise InputError(self.flag, None, problem, "choose another folder")
            write_whole(self.folder / "run.json", json.dumps(about, ensure_ascii=False) + "\n", shared=True)
        for name, (before, now) in changes(self.about, json.loads(json.dumps(about))).items():
            problem = f"{self.folder} was started with {name} {before!r}, not {now!r}"
            raise InputError(self.flag, None, problem, f"give the same arguments to resume, or {self._otherwise}")

    @property
    def _otherwise(self) -> str:
        return "another folder" if self.flag == "--shards" else "leave --resume out to start over"

    def path(self, number: int) -> Path:
        """File of a shard."""
        return self.folder / "shards" / f"{number:06d}.{self.about['shard_format']}"

    def bad(self, number: int) -> Path:
        """File of the skipped lines of a shard."""
        return self.folder / "bad" / f"{number:06d}.jsonl"

    def sums(self, number: int) -> Path:
        """File with a shard's run, lines and checksum."""
        return self.folder / "sums" / f"{number:06d}.json"

    @cached_property
    def run(self) -> str:
        """Fingerprint of the run's settings."""
        return file_fingerprint(self.folder / "run.json")

    @contextmanager
    def shard(self, number: int, schema: Any, lines: int, texts: str) -> Iterator[tuple[Writer, list[Row]]]:
        """A shard's writer and a list for its skipped lines; both are kept if nothing is raised.

        `lines` is the number of its input lines, `texts` their fingerprint.
        """
        path = self.path(number)
        refused: list[Row] = []
        for file in (path, self.bad(number), self.sums(number)):
            remove_parts(file)
        if path.suffix == ".jsonl" and not (card := path.with_name("README.md")).exists():
            # declares the types for `datasets`, which would otherwise infer them from the first shard
            features = [{"name": field.name} | _feature(field.type) for field in schema]
            write_whole(card, f"---\ndataset_info: {json.dumps({'features': features})}\n---\n", shared=True)
        with atomic(path, shared=True) as part:
            with closing((writer := WRITERS[path.suffix[1:]](part, schema)).file):
                yield writer, refused
            # these two before the shard, which marks that everything is done
            if refused:
                with written(self.bad(number), JsonLines) as bad:
                    bad.write(refused)
            about = {"run": self.run, "first": 1 + number * self.about["shard_size"], "lines": lines, "input": texts}
            about |= {"sha256": file_fingerprint(part)}
            write_whole(self.sums(number), json.dumps(about) + "\n", shared=True)

    def finish(self, lines: int, shards: int) -> None:
        """Store the totals; each process stores the same."""
        text = json.dumps({"lines": lines, "shards": shards}) + "\n"
        write_whole(self.folder / "total.json", text, shared=True)

    @cached_property
    def total(self) -> Row:
        """How many lines and shards there are."""
        return self._read("total.json", ["lines", "shards"], "is not complete", "run the same command again to resume")

    def complete(self) -> list[Path]:
        """All shards in order; raises if one is missing."""
        lines, size, shards = self.total["lines"], self.about["shard_size"], self.total["shards"]
        paths = [self.path(number) for number in range(shards)]
        if size < 1 or lines < 0 or shards != -(-lines // size) or self.path(shards).exists():
            problem = (
                f"{lines} lines in {shards} shards, according to its total.json, do not match shards of {size} lines"
            )
            raise InputError(str(self.folder), None, problem, "run the same command again")
        if missing := [path.name for path in paths if not path.exists()]:
            problem = f"{len(missing)} of {len(paths)} shards are missing, the first is {missing[0]}"
            raise InputError(str(self.folder), None, problem, "run the same command again to resume")
        return paths

    def check(self, number: int) -> None:
        """Raise if a shard is not the one that this run wrote for its lines."""
        size, path, where = self.about["shard_size"], self.path(number), f"sums/{self.sums(number).name}"
        try:
            found = json.loads(self.sums(number).read_bytes())
            run, first, lines, checksum = (found[name] for name in ("run", "first", "lines", "sha256"))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{where} is missing or damaged") from error
        if run != self.run:
            raise ValueError(f"{where} belongs to another run")
        if (first, lines) != (due := (1 + number * size, min(size, self.total["lines"] - number * size))):
            raise ValueError(f"{where} has {lines} lines from {first}, expected {due[1]} from {due[0]}")
        if file_fingerprint(path) != checksum:
            raise ValueError("it was changed after it was written")

    def check_input(self, number: int, texts: str) -> None:
        """Raise if a shard was made from other lines than the input has now."""
        try:
            found = json.loads(self.sums(number).read_bytes())
            same = found["input"] == texts and found["run"] == self.run
        except (OSError, ValueError, TypeError, KeyError):
            same = False
        if not same:
            remedy = f"give the same input, or {self._otherwise}"
            raise InputError(str(self.path(number)), None, "was made from other lines than the input has now", remedy)

    def rows(self) -> Iterator[Row]:
        """All rows in order; raises if a shard is missing, damaged or incomplete."""
        for number, path in enumerate(self.complete()):
            with reading(path):
                self.check(number)
                yield from read_rows(path)

    def join_parquet(self, output: str | None) -> None:
        """Write one Parquet file of Parquet shards, some rows at a time."""
        if not output:
            raise InputError("--format", "parquet", "cannot be written to stdout", "give --output FILE")
        if self.about["shard_format"] != "parquet":
            raise InputError("--format", None, "these shards are JSON lines", "run with --shard-format parquet")
        batches = self._batches()
        if (first := next(batches, None)) is None:
            raise InputError(str(self.folder), None, "there is nothing to merge, because the input had no lines")
        with written(Path(output), Parquet, first.schema) as writer:
            for batch in chain([first], batches):
                writer.file.write_batch(batch)

    def _batches(self) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        for number, path in enumerate(self.complete()):
            with reading(path):
                self.check(number)
                with ParquetFile(path) as file:
                    yield from file.iter_batches(batch_size=256)

    def refused(self) -> int:
        """How many lines were skipped."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder.glob("bad/*.jsonl"))

    def join_refused(self, output: Path) -> None:
        """Write one list of the skipped lines; no file if there are none."""
        if not (paths := sorted(self.folder.glob("bad/*.jsonl"))):
            output.unlink(missing_ok=True)
            return
        with atomic(output, shared=True) as part, part.open("wb") as file:
            file.writelines(path.read_bytes() for path in paths)

    def remove(self) -> None:
        """Remove the folder of an `--output`, if there is one; raises for a folder of `--shards`."""
        if (self.folder / "run.json").exists():
            own = ("shards", "sums", "bad", "total.json", "run.json", LOCK)
            if others := [path for path in self.folder.iterdir() if path.name not in own and path.suffix != ".part"]:
                problem = f"{self.folder} has a file that this command did not write, {others[0].name}"
                raise InputError(self.flag, None, problem, "move it, or choose another output")
            if self.about.get("output") is None:
                raise InputError(self.flag, None, f"{self.folder} was written by --shards", "choose another name")
            for name in ("shards", "sums", "bad"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            for name in ("total.json", "run.json"):  # removed last: until then, a killed run can be resumed
                (self.folder / name).unlink(missing_ok=True)

    def _read(self, name: str, fields: list[str], problem: str, remedy: str = "") -> Row:
        """The JSON object in a file; raises unless these fields are numbers."""
        try:
            found = json.loads((self.folder / name).read_text(encoding="utf-8"))
            if not isinstance(found, dict) or not all(type(found.get(field)) is int for field in fields):
                raise ValueError(f"{name} must have the numbers {', '.join(fields)}")
        except (OSError, ValueError) as error:
            raise InputError(str(self.folder), None, problem, remedy) from error
        return found
