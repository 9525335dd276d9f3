"""Corpora of any size: read as a stream, processed in windows, written to shards, split over processes.

Shard k holds the results of lines [k n, (k + 1) n) and is written by process k mod the number of processes. Its
content depends only on its lines: windows and batches start with each shard. A run that was killed, or split over
another number of processes, therefore writes the same files.
"""

import argparse
import hashlib
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, TextIO

from hf_nmt_interp.cli.arguments import MODEL, chosen_format, positive
from hf_nmt_interp.cli.loading import load_for
from hf_nmt_interp.cli.output import open_output, write_json
from hf_nmt_interp.cli.paths import InputFile, OutputFolder, given
from hf_nmt_interp.cli.shards import SHARD_FORMATS, Row, ShardFolder
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import Line, LineError, MissingLine, Texts, try_dataset, try_parallel
from hf_nmt_interp.text.fingerprints import data_fingerprint, versions
from hf_nmt_interp.text.progress import counting, estimate
from hf_nmt_interp.text.tables import arrow_schema

_BATCHES = 16  # of a window
_CHARACTERS = 256  # average tokens of a line: batches of longer lines have fewer lines
HEAD = 40  # lines that are read before the work starts, to report errors early
_SHOWN = 5  # refused lines that are printed
# arguments that do not change the output, or that are recorded elsewhere
_ASIDE = ("device", "flags", "formats", "head", "resume", "run", "shards", "strict", "total", "traceback")


class Job(ABC):
    """How a verb processes a corpus: rows for lines, and how shards are joined. The verb's module calls it `JOB`."""

    merged = "one file with all rows in the order of the input"  # description of merge's output
    merged_formats: tuple[str, ...] = ("json", "parquet")  # the first is the default
    merge_options: ClassVar[dict[str, str]] = {}  # options of merge that select rows, integers from 1, and their help
    columns: ClassVar[Any]  # types of the fields of a row except its line number, as for `arrow_schema`

    @property
    def schema(self) -> Any:
        """The pyarrow schema of the rows."""
        return arrow_schema({"line": int, **self.columns})

    @abstractmethod
    def rows(self, lines: list[Texts]) -> list[Row]:
        """A row for each line, without its number; raises InputError for an invalid line."""

    @classmethod
    def merge(cls, folder: ShardFolder, args: argparse.Namespace) -> None:
        """Join complete shards in the format of the arguments."""
        if (kind := chosen_format(args)) == "parquet":
            folder.join_parquet(args.output)
            return
        with open_output(args.output) as file:
            cls.write(folder.rows(), kind, file)

    @staticmethod
    def write(rows: Iterator[Row], kind: str, file: TextIO) -> None:
        """Write rows as text."""
        write_json(rows, file)


class Translator(Job):
    """A job with the translator of the arguments."""

    def __init__(self, args: argparse.Namespace, model: str) -> None:
        self.args = args
        self.model, self.tokenizer = load_for(args, model)

    def checked(self, lines: list[Texts]) -> tuple[list[str], list[str] | None]:
        """Sources and, if they are given, targets; raises for a side without words or a source that is too long."""
        for line in lines:
            for text, side in zip(line, ("source", "target"), strict=False):
                if not text.strip():
                    raise InputError(side, None, "has no words")
        return [line[0] for line in lines], [line[1] for line in lines] if len(lines[0]) > 1 else None


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """`--shards` and its options."""
    about = "Reads lines as a stream and writes one row for each; run the same command again to resume."
    split = "`accelerate launch -m hf_nmt_interp ...` splits the work; `hf-nmt-interp merge` joins the shards."
    group = parser.add_argument_group("corpora", f"{about} {split}")
    group.add_argument("--shards", type=OutputFolder, metavar="FOLDER", help="folder for the results, in shards")
    group.add_argument(
        "--shard-size", type=positive, default=1000, metavar="N", help="lines per shard (default: %(default)s)"
    )
    group.add_argument("--shard-format", choices=SHARD_FORMATS, default=SHARD_FORMATS[0], help="default: %(default)s")
    help = "instead of text files: a dataset for `datasets`, from the Hub, a folder or a file"
    group.add_argument("--dataset", type=InputFile, metavar="NAME", help=help)
    group.add_argument("--config", metavar="NAME", help="configuration of --dataset")
    group.add_argument("--split", metavar="NAME", default="train", help="split of --dataset (default: %(default)s)")
    help = "fields of --dataset: source, and target for given translations (default: source)"
    group.add_argument("--fields", nargs="+", default=["source"], metavar="NAME", help=help)
    group.add_argument("--strict", action="store_true", help="stop at the first invalid line instead of skipping it")


def refuse(args: argparse.Namespace, *names: str) -> None:
    """Raise if an argument was given that corpus runs do not support."""
    for name in names:
        if getattr(args, name) is not None:
            raise InputError(
                args.flags[name], None, "is not supported with --shards", "give it to merge, if it has such an option"
            )


def check_processes(args: argparse.Namespace) -> None:
    """Raise if several processes were started for a run that cannot be split, or if an argument needs `--shards`."""
    _, processes = place()
    shards = getattr(args, "shards", None)
    if processes > 1 and not shards:
        raise InputError(
            "WORLD_SIZE", processes, "processes cannot share this run", "only runs with --shards can be split"
        )
    if getattr(args, "dataset", None) and not shards:
        raise InputError("--dataset", None, "needs --shards FOLDER for the results")


def place() -> tuple[int, int]:
    """Number of this process and how many there are, as launchers set it (RANK, WORLD_SIZE)."""
    found = {name: os.environ.get(name, default) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))}
    for name, text in found.items():
        if not text.isascii() or not text.isdigit():
            raise InputError(name, text, "is not an integer", "it is set by launchers")
    rank, processes = map(int, found.values())
    if rank >= processes:
        raise InputError("RANK", rank, f"is not below WORLD_SIZE, {processes}", "both are set by launchers")
    return rank, processes


def read_corpus(args: argparse.Namespace, paths: Sequence[str | None]) -> Iterator[Line]:
    """Lines of the text files, or of `--dataset`; the first ones are read at once, to `args.head`."""
    files = [path for path in paths if path]
    if getattr(args, "sentences", None):
        raise InputError(
            "--shards", None, "does not take sentences as arguments", "give --input FILE or --dataset NAME"
        )
    if bool(files) == bool(args.dataset) or not (paths[0] or args.dataset):
        raise InputError("--shards", None, "needs either text files or --dataset")
    if args.dataset:
        if len(args.fields) > 2:
            raise InputError("--fields", " ".join(args.fields), "are more than two fields", "give source and target")
        lines: Iterator[Line] = try_dataset(args.dataset, args.fields, config=args.config, split=args.split)
    else:
        if "-" in files and place()[1] > 1:
            raise InputError("-", None, "several processes cannot share stdin", "give a file")
        lines = try_parallel(files)
    lines = islice(lines, getattr(args, "limit", None))
    args.head, args.total = list(islice(lines, HEAD)), _count_lines(files, getattr(args, "limit", None))
    return chain(args.head, lines)


def _count_lines(files: Sequence[str], limit: int | None) -> int | None:
    """Lines that will be read, for the progress bar; None if that is not known."""
    if not sys.stderr.isatty() or not files or not os.path.isfile(files[0]):
        return None
    with open(files[0], "rb") as file:
        found = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return min(found, limit or found)


def timed(args: argparse.Namespace, job: "Job") -> "Job":
    """The job; also prints an estimate of its duration from one of the first lines."""
    lines = [line for line in args.head if not isinstance(line, InputError)]
    if lines:
        line = sorted(lines, key=lambda line: len(line[0]))[len(lines) // 2]
        estimate(args.verb, lambda: job.rows([line]), args.total or 0)
    return job


def run_corpus(args: argparse.Namespace, paths: Sequence[str | None], make_job: Callable[[], Job]) -> None:
    """Run a verb's job on `--dataset` or text files, source and target; `make_job` loads the model if needed."""
    folder = ShardFolder(args.shards)
    report = Refusals(args, "its row is empty", "the rows of the rest are empty", folder.folder / "bad")
    lines = read_corpus(args, paths)
    with folder.locked(place()[0]):
        fill(folder, args, lines, make_job, report)
    if place()[0] == 0:
        print(f"{folder.total['lines']:,} lines in {folder.total['shards']:,} shards of {folder.folder}")
    report.end()


def fill(
    folder: ShardFolder,
    args: argparse.Namespace,
    lines: Iterator[Line],
    make_job: Callable[[], Job],
    report: "Refusals",
) -> None:
    """Write the missing shards that belong to this process."""
    rank, processes = place()
    # no folder is created for wrong settings
    job = None if (folder.folder / "run.json").exists() else timed(args, make_job())
    folder.begin(_about(args), alone=processes == 1)
    total, number = 0, 0
    with counting("Lines", args.total) as advance:
        while shard := list(islice(lines, args.shard_size)):
            texts = hashlib.sha256(json.dumps([str(line) for line in shard]).encode()).hexdigest()
            report.missing = report.missing or next((line for line in shard if isinstance(line, MissingLine)), None)
            if number % processes == rank and not folder.path(number).exists():
                job = job or make_job()
                with folder.shard(number, job.schema, len(shard), texts) as (writer, refused):
                    for rows, bad in windows(job, shard, args.batch_size, report, total + 1, advance):
                        writer.write(rows)
                        refused += bad
            else:
                if folder.path(number).exists():
                    folder.check_input(number, texts)
                advance(len(shard))
            total, number = total + len(shard), number + 1
    folder.finish(total, number)


def windows(
    job: Job,
    lines: Iterable[Line],
    batch_size: int,
    report: "Refusals",
    first: int = 1,
    advance: Callable[[int], None] | None = None,
) -> Iterator[tuple[list[Row], list[Row]]]:
    """Window by window, a row for each line with its number, counted from `first`, and the rows of skipped lines.

    `advance` is called with the lines done; without it each window has its own progress bar.
    """
    lines = iter(lines)
    while window := list(islice(lines, _BATCHES * batch_size)):
        with counting("Lines", len(window)) if advance is None else nullcontext(advance) as done:
            found = list(enumerate(work(job, window, batch_size, done), first))
        refused = [report.row(n, row) for n, row in found if isinstance(row, InputError)]
        yield [{"line": n} | ({} if isinstance(row, InputError) else row) for n, row in found], refused
        first += len(window)


def work(
    job: Job, lines: list[Line], batch_size: int, advance: Callable[[int], None] = lambda done: None
) -> list[Row | InputError]:
    """A row or an error for each line of a window; batches have lines of similar length."""
    found: dict[int, Row | InputError] = {n: line for n, line in enumerate(lines) if isinstance(line, InputError)}
    texts = {n: line for n, line in enumerate(lines) if not isinstance(line, InputError)}
    for batch in batches(texts, batch_size):
        found |= zip(batch, try_rows(job.rows, [texts[n] for n in batch]), strict=True)
        advance(len(batch))
    return [found[n] for n in range(len(lines))]


def batches(texts: dict[int, Texts], batch_size: int) -> Iterator[list[int]]:
    """Keys of batches of similar length, longest first: at most `batch_size` lines, fewer if they are long."""
    sizes = {n: max(map(len, line)) for n, line in texts.items()}
    batch: list[int] = []
    for n in sorted(sizes, key=lambda n: (-sizes[n], n)):
        longest = sizes[batch[0]] if batch else 0
        if batch and (len(batch) == batch_size or (len(batch) + 1) * longest > batch_size * _CHARACTERS):
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


def try_rows(do: Callable[[list[Any]], list[Any]], lines: list[Any]) -> list[Any]:
    """Results of all lines at once; if one is invalid, each half is tried, down to the error of a single line."""
    try:
        return list(do(lines))
    except InputError as error:
        if half := len(lines) // 2:
            return [*try_rows(do, lines[:half]), *try_rows(do, lines[half:])]
        # sources[0] of one line is its source
        return [error if error.row is None else error.at(argument=error.argument.removesuffix("s"), row=None)]


def _about(args: argparse.Namespace) -> Row:
    """Everything the results depend on: arguments, contents of input files, weights, versions."""
    from hf_nmt_interp.models.loading import model_fingerprint

    about = {name: value for name, value in sorted(vars(args).items()) if name not in _ASIDE}
    about.setdefault("seed", 0)  # of sampling, for verbs that have no such argument
    for name, path in given(args):
        if isinstance(path, InputFile):  # by content and name, in any folder
            paths = getattr(args, name)
            about |= {name: _in_list(_base, paths), f"sha256 of {name}": _in_list(data_fingerprint, paths)}
    for name in ("model", "reverse_model"):
        if name in about and (value := about[name] or (MODEL if name == "model" else None)):
            about |= {name: _in_list(_normal, value), f"sha256 of {name}": _in_list(model_fingerprint, value)}
    return about | {f"version of {name}": version for name, version in versions().items()}


def _in_list(change: Callable[[str], str], value: Any) -> Any:
    return [change(one) for one in value] if isinstance(value, list) else change(value)


def _normal(path: str) -> str:
    return os.path.normpath(path) if os.path.exists(path) else path


def _base(path: str) -> str:
    return os.path.basename(_normal(path)) if os.path.exists(path) else path


class Refusals:
    """Reports skipped lines on stderr, only the first few if a file lists them all.

    `instead` describes what was written for such a line, `rest` for lines that only one file has.
    """

    def __init__(self, args: argparse.Namespace, instead: str, rest: str, listed: Path | None) -> None:
        self.args, self.instead, self.rest, self.listed, self.count = args, instead, rest, listed, 0
        self.missing: MissingLine | None = None

    def row(self, number: int, error: InputError) -> Row:
        """Report a line, or stop; returns its row in the list."""
        found = error if isinstance(error, LineError) else InputError(f"line {number}", None, str(error))
        if self.args.strict:
            last = "remedy" if found.remedy else "problem"
            raise found.at(**{last: f"{getattr(found, last)} (--strict)"})
        if isinstance(error, MissingLine):
            self.missing = self.missing or error  # reported once, at the end
        else:
            self.count += 1
            if self.count <= _SHOWN or not self.listed:
                print(f"hf-nmt-interp {self.args.verb}: {found}; {self.instead}", file=sys.stderr)
        return {"line": number, "reason": str(error)}

    def end(self) -> None:
        """Report how many there were; raises if a file had fewer lines than another."""
        if self.count and self.listed:
            print(f"{self.count:,} lines were skipped, see {self.listed}", file=sys.stderr)
        if self.missing:
            raise self.missing.at(remedy=f"{self.missing.remedy}; {self.rest}")
