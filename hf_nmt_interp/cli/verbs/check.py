"""Check translations: detached text (hallucinations), omissions, repetitions, line by line and word by word.

Files have one sentence per line, UTF-8. With two files the model checks the given translations, which may be those of
another model; with one it checks its own. For each line it reports P(error) for each kind of error and whether it is
above the fitted threshold, with the false-alarm rate measured at that threshold; whether a clause of the source has no
translated word (omitted_clause), with its rate; source words that are not translated; and target words without support
in the source. Rates were measured on the labelled lines that the weights were fitted on, see --weights and
docs/checking.md. A summary is printed on stderr.

table  only lines with something to report: errors that were found, with their false-alarm rates, and phrases
json   one object per line of input: words, verdicts, signals
tsv    one row per line of input: scores, kinds of errors found, phrases
html   a page that marks the words
The default signals need three forward passes per line. --signals default,contrastive_conditioning adds one signal,
--signals all computes all of them. Use --shards to check whole corpora; `merge` joins the shards.

With --fail-above 0.25 the exit code is 1 if an error was found in more than 25 % of the lines.

Examples:
  hf-nmt-interp check train.en train.de
  hf-nmt-interp check train.en train.de --output checks.html
  hf-nmt-interp check train.en --format json
  hf-nmt-interp check train.en train.de --format tsv
  hf-nmt-interp check train.en train.de --shards runs/checked
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from hf_nmt_interp.cli.arguments import (
    OUTPUT_FORMATS,
    add_decoding,
    add_model,
    add_output,
    chosen_format,
    generate_options,
)
from hf_nmt_interp.cli.output import open_output, write_json, write_tsv
from hf_nmt_interp.cli.paths import InputFile
from hf_nmt_interp.cli.sharded_run import (
    Refusals,
    Translator,
    add_corpus,
    read_corpus,
    refuse,
    run_corpus,
    timed,
    try_rows,
    windows,
)
from hf_nmt_interp.cli.shards import Row
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import Texts
from hf_nmt_interp.text.tables import arrow_schema


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a share from 0 to 1")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=InputFile, metavar="SOURCE", nargs="?", help="file of sentences, - for stdin")
    help = "file of their translations (default: the model translates)"
    parser.add_argument("target", type=InputFile, metavar="TARGET", nargs="?", help=help)
    group = parser.add_argument_group("checks")
    help = "comma-separated names (default: default); an unknown name lists them all"
    group.add_argument("--signals", metavar="NAMES", help=help)
    help = "fitted weights and thresholds, from check-table --save (default: the bundled ones)"
    group.add_argument("--weights", type=InputFile, metavar="FILE", help=help)
    help = "exit with code 1 if errors were found in more than this share of the lines, 0 to 1"
    group.add_argument("--fail-above", type=share, metavar="SHARE", help=help)
    add_model(parser)
    add_decoding(parser, batch_size=32)
    add_output(parser, OUTPUT_FORMATS)
    add_corpus(parser)


def run(args: argparse.Namespace) -> None:
    """Check window by window."""
    if args.shards:
        refuse(args, "output", "format", "fail_above")
        run_corpus(args, (args.source, args.target), lambda: _Checker(args))
        return
    if not args.source:
        raise InputError(
            "SOURCE", None, "no file given", "give a file of sentences, and optionally one of their translations"
        )
    lines = read_corpus(args, (args.source, args.target))
    report = Refusals(args, "its row is empty", "the rows of the rest are empty", None)
    found = windows(timed(args, _Checker(args)), lines, args.batch_size, report)
    summary = _Summary()
    with open_output(args.output) as file:
        _Checker.write(summary.counted(row for rows, _ in found for row in rows), chosen_format(args), file)
    print(summary, file=sys.stderr)
    report.end()
    if args.fail_above is not None and summary.share > args.fail_above:
        raise SystemExit(1)


class _Summary:
    """Counts the errors found in the rows that pass through."""

    def __init__(self) -> None:
        self.lines, self.wrong = 0, 0
        self.kinds: dict[str, tuple[int, float]] = {}  # lines found, false-alarm rate

    def counted(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            verdicts = row.get("verdicts") or {}
            self.lines += 1
            self.wrong += any(verdict["found"] for verdict in verdicts.values())
            for kind, verdict in verdicts.items():
                self.kinds[kind] = self.kinds.get(kind, (0, 0))[0] + verdict["found"], verdict["false_alarms"]
            yield row

    @property
    def share(self) -> float:
        return self.wrong / max(self.lines, 1)

    def __str__(self) -> str:
        kinds = ", ".join(
            f"{kind} in {count:,} (false alarms {rate:.1%})" for kind, (count, rate) in self.kinds.items()
        )
        lines = f"{self.lines:,} line{'s' * (self.lines != 1)}"
        return f"{lines}, {self.wrong:,} with an error found: {kinds or 'no verdicts by these signals'}"


class _Checker(Translator):
    """Checks of translations as rows."""

    merged_formats = ("json", "tsv", "html", "parquet")

    def __init__(self, args: argparse.Namespace) -> None:
        from hf_nmt_interp.analysis.checking import kinds as known_kinds
        from hf_nmt_interp.analysis.checking import load_weights
        from hf_nmt_interp.analysis.signals import chosen_signals

        self.names = chosen_signals(args.signals.split(",") if args.signals else None)
        self.weights = load_weights(args.weights)
        super().__init__(args, args.model)
        self.choice = self._choose([line for line in args.head if not isinstance(line, InputError)])
        verdict = {"score": float, "found": bool, "threshold": float, "false_alarms": float}
        kinds = known_kinds(self.names, self.weights)
        self.own: Any = {
            "source": list[str], "target": list[str], "target_text": str, "verdicts": dict.fromkeys(kinds, verdict),
            "untranslated": list[int], "unsupported": list[int], "untranslated_text": list[str],
            "unsupported_text": list[str], "signals": dict.fromkeys(self.names, float),
            "omitted": [{"part": str, "gain": float}],
        }  # fmt: skip
        if not kinds:  # pyarrow cannot write structs without fields
            del self.own["verdicts"]

    @property
    def schema(self) -> Any:
        return arrow_schema({"line": int, **self.own})

    def _choose(self, lines: list[Texts]) -> Any:
        """The attention used to align, chosen on the first lines if it is not known; the same for all windows."""
        from hf_nmt_interp.analysis.own_attention import known_choice
        from hf_nmt_interp.analysis.signals.reading import aligner
        from hf_nmt_interp.decoding.pairs import SHOWN, Pairs

        if found := known_choice(self.model, cached=not self.args.shards):
            return found

        def encode(some: list[Texts]) -> list[Any]:
            sources, targets = self.checked(some)
            more = {"batch_size": self.args.batch_size, "generate": generate_options(self.args)}
            return list(Pairs.make(self.model, self.tokenizer, sources, targets, SHOWN, **more))

        pairs = [pair for pair in try_rows(encode, lines) if not isinstance(pair, InputError)]
        return aligner(self.model, Pairs(self.model, pairs), self.args.batch_size)

    def rows(self, lines: list[Texts]) -> list[Row]:
        from hf_nmt_interp.analysis.checking import check

        sources, targets = [line[0] for line in lines], [line[1] for line in lines] if len(lines[0]) > 1 else None
        if empty := [n for n, source in enumerate(sources) if not source.strip()]:
            raise InputError("sources", None, "has no words", row=empty[0])
        how: dict[str, Any] = {"signals": self.names, "weights": self.weights, "choice": self.choice}
        how |= {"batch_size": len(lines), "generate": generate_options(self.args)}
        return [_row(one.to_dict(), self.own) for one in check(self.model, self.tokenizer, sources, targets, **how)]

    @staticmethod
    def write(rows: Iterator[Row], kind: str, file: TextIO) -> None:
        if kind == "json":
            write_json(rows, file)
        elif kind == "tsv":
            write_tsv(map(_flat, rows), file)
        elif kind == "html":
            from hf_nmt_interp.report.checks import render_checks

            file.write(render_checks(rows))
        else:
            from rich.console import Console

            from hf_nmt_interp.report.terminal import table

            shown = [_flat(row) for row in rows]
            reported = [row for row in shown if row["found"] or row["untranslated"] or row["unsupported"]]
            file.write("" if reported else "nothing to report\n")
            if reported:
                columns = "line", "found", "untranslated", "unsupported"
                Console(file=file).print(table([{name: row[name] for name in columns} for row in reported]))


def _row(found: Row, columns: Any) -> Row:
    found["omitted"] = [{"part": part, "gain": gain} for part, gain in found["omitted"].items()]
    return {name: found[name] for name in columns}


def _flat(row: Row) -> Row:
    """A row without lists and objects; empty for a line that was refused."""
    verdicts = row.get("verdicts") or {}
    found = {"line": row["line"]} | {kind: round(verdict["score"], 4) for kind, verdict in verdicts.items()}
    kinds = [f"{kind} ({verdict['false_alarms']:.1%})" for kind, verdict in verdicts.items() if verdict["found"]]
    found["found"] = ", ".join(kinds)
    found |= {name: " / ".join(row.get(f"{name}_text") or ()) for name in ("untranslated", "unsupported")}
    return found | {"target": row.get("target_text") or ""}


JOB = _Checker
