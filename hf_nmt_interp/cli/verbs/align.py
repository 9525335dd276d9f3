"""Align the words of sentence pairs, or of sentences and the model's own translations of them.

Files have one sentence per line, UTF-8. With two files the model force decodes the given translations; with one it
translates (--translations saves them). Each line gives one line of links `source-target`. It is empty if the line has
no words or cannot be aligned; the reason is then printed and listed in OUTPUT.bad, or with --strict the run stops.
Memory use does not depend on the size of the files.
Words are counted from 0. In Pharaoh lines and in shards, words are what spaces separate, as other tools expect. With
--format json, which lists the words, text without spaces is split and punctuation marks are words. --words and
--punctuation override this for any format.
With --format json each link has a score: its share of the scores of its target word, or with two directions the
geometric mean of its shares of both words. --least drops links below a score.
--output is written when it is complete; until then OUTPUT.shards has the finished part, and --resume continues it.
Use --shards to split the work over processes; `merge` joins the shards.

Presets start from the model's alignment head, or else its best attention head, chosen once without gold links:
fast      nothing else (default)
balanced  adds the gradient of Li et al. (2016)
best      adds that gradient and SmoothGrad
balanced and best multiply the scores of both directions for bundled translators, and if --reverse-model is given.

Examples:
  hf-nmt-interp align train.en train.de --output train.links
  hf-nmt-interp align --preset balanced train.en train.de
  hf-nmt-interp align --method attention --set layer=0 --translations hypotheses.de train.en
  hf-nmt-interp align --format json train.en train.de
  hf-nmt-interp align --words pieces --punctuation separate train.en train.de
  hf-nmt-interp align --extraction mutual --least 0.5 train.en train.de
  hf-nmt-interp align --method attention+saliency --reverse-model demo:de-en --joint --least 0.2 train.en train.de
  hf-nmt-interp align --method attention train.en train.de --shards runs/aligned
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TextIO

from hf_nmt_interp.cli.arguments import (
    DISPLAYED,
    PHARAOH,
    add_decoding,
    add_model,
    add_reverse_prefix,
    add_splitting,
    chosen_format,
    generate_options,
    splitting,
)
from hf_nmt_interp.cli.output import write_json
from hf_nmt_interp.cli.paths import InputFile, OutputFile, OutputLines
from hf_nmt_interp.cli.sharded_run import (
    Job,
    Refusals,
    add_corpus,
    fill,
    read_corpus,
    refuse,
    run_corpus,
    timed,
    try_rows,
    windows,
)
from hf_nmt_interp.cli.shards import Row, ShardFolder, remove_parts
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import Line, Texts
from hf_nmt_interp.text.files import atomic

if TYPE_CHECKING:
    import numpy as np

    from hf_nmt_interp.analysis.alignment import WordAlignment

Spelt = tuple[str, list[str]]  # a text and its words
# methods beside the model's own attention
PRESETS = {"fast": "", "balanced": "+saliency:aggregate=li2016", "best": "+saliency:aggregate=li2016+smoothgrad"}
FORMATS = ("pharaoh", "json")
_SHOWN = "source", "target", "links", "scores"  # of a line as JSON
_BOX = {"demo:en-de": "demo:de-en", "demo:de-en": "demo:en-de"}  # translators with a known reverse direction
_WORD = re.compile(r"[^ \t\r\v\f]+")  # other spaces, like U+00A0, may be part of a word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=InputFile, metavar="SOURCE", nargs="?", help="file of sentences, - for stdin")
    help = "file of their translations (default: the model translates)"
    parser.add_argument("target", type=InputFile, metavar="TARGET", nargs="?", help=help)
    group = parser.add_argument_group("alignment")
    default = "the model's alignment head, or its best attention head, chosen on at most 40 of the first lines"
    help = f"a method of `attribute`, or several, e.g. attention+smoothgrad:sigma=0.2 (default: {default})"
    group.add_argument("--method", metavar="NAME", help=help)
    group.add_argument("--preset", choices=PRESETS, help="instead of --method, see above")
    help = "a setting of the method; may be repeated"
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=help)
    group.add_argument(
        "--extraction",
        default="argmax",
        metavar="NAME",
        help="argmax (default), subword_argmax, threshold, mutual or shared",
    )
    group.add_argument(
        "--threshold",
        type=float,
        metavar="P",
        help="for --extraction threshold (default: 0.2) or shared (default: 0.3)",
    )
    group.add_argument("--reverse-model", metavar="NAME", help="translator of the other direction, to symmetrise with")
    add_reverse_prefix(group)
    help = "intersection, union, grow-diag, grow-diag-final (default with --reverse-model), grow-diag-final-and"
    group.add_argument("--symmetrize", metavar="NAME", help=help)
    help = "multiply the scores of both directions before links are extracted"
    group.add_argument("--joint", action="store_true", help=help)
    help = "drop links below this share of the scores of their words, e.g. 0.2"
    group.add_argument("--least", type=float, metavar="P", help=help)
    add_splitting(group, by_format=True)
    add_model(parser)
    add_decoding(parser, batch_size=32)
    group = parser.add_argument_group("output")
    help = "json: words, links and their shares (default: from the extension of --output, else pharaoh)"
    group.add_argument("--format", choices=FORMATS, help=help)
    group.add_argument("--output", type=OutputLines, metavar="FILE", help="default: stdout")
    parser.set_defaults(formats=FORMATS)
    group.add_argument(
        "--translations", type=OutputFile, metavar="FILE", help="save the model's translations to this file"
    )
    help = "resume a stopped run with the same --output, after its last complete shard of --shard-size lines"
    group.add_argument("--resume", action="store_true", help=help)
    add_corpus(parser)


def run(args: argparse.Namespace) -> None:
    """Align window by window."""
    for name, default in (DISPLAYED if chosen_format(args) == "json" else PHARAOH).items():
        setattr(args, name, getattr(args, name) or default)
    if args.preset:
        _apply_preset(args)
    if args.translations and args.target:
        raise InputError("--translations", None, "the translations are given in TARGET", "leave one out")
    for flag in ("symmetrize", "joint"):
        if getattr(args, flag) and not args.reverse_model:
            raise InputError(f"--{flag}", None, "needs the other direction", "give --reverse-model")
    if args.shards:
        refuse(args, "output", "format", "translations")
        run_corpus(args, (args.source, args.target), lambda: _Aligner(args))
        return
    if not args.source:
        raise InputError("SOURCE", None, "no file", "give the sentences, and their translations if there are any")
    if args.resume and not (args.output and args.output.beside()):  # a device has no side files
        raise InputError("--resume", None, "needs --output")
    _run_text(args)


def _apply_preset(args: argparse.Namespace) -> None:
    """Settings of a preset for both directions; its methods are set when the attention is chosen."""
    for name in ("method", "set", "symmetrize", "joint"):
        if getattr(args, name):
            raise InputError("--preset", args.preset, f"also chooses --{name}", "give one of them")
    reverse = args.reverse_model or _BOX.get(args.model)
    if args.preset != "fast" and reverse:
        args.reverse_model, args.joint, args.symmetrize = reverse, True, "grow-diag"
        args.least = 0.2 if args.least is None else args.least


def _run_text(args: argparse.Namespace) -> None:
    """Write lines of links, and translations if requested; files are written in shards, which can be resumed."""
    lines = read_corpus(args, (args.source, args.target))
    bad = Path(args.output.beside()[0]) if args.output and args.output.beside() else None
    report = Refusals(args, "wrote an empty line", "wrote empty lines for the rest", bad)
    folder = ShardFolder(f"{args.output}.shards", "--output") if bad else None
    with folder.locked() if folder else nullcontext():
        _write_text(args, lines, folder, bad, report)
    report.end()


def _write_text(
    args: argparse.Namespace, lines: Iterator[Line], folder: ShardFolder | None, bad: Path | None, report: Refusals
) -> None:
    if folder and bad:
        job = None
        if not args.resume:
            job = _Aligner(args)  # wrong settings are reported before an earlier run is removed
            ShardFolder(folder.folder, "--output").remove()
        fill(folder, args, lines, lambda: job or _Aligner(args), report)
        for path in filter(None, (args.output, args.translations, bad)):
            remove_parts(Path(os.path.realpath(path)))  # left by a run that was killed while it joined its shards
        found: Iterable[Iterable[Row]] = [folder.rows()]
    else:
        found = (rows for rows, _ in windows(timed(args, _Aligner(args)), lines, args.batch_size, report))
    with _open(args.output) as links, _open(args.translations) if args.translations else nullcontext() as texts:
        for rows in found:
            for row in rows:
                links.write(_format(row, chosen_format(args)).encode() + b"\n")
                if texts:
                    texts.write((row.get("target_text") or "").encode() + b"\n")
            links.flush()
    if folder and bad:
        folder.join_refused(bad)
        folder.remove()


@contextmanager
def _open(path: str | None) -> Iterator[BinaryIO]:
    """Stdout for None, otherwise a file that gets its name when it is complete."""
    if path is None:
        yield sys.stdout.buffer
        return
    with atomic(path, shared=True) as part, part.open("wb") as file:
        yield file


def _format(row: Row, kind: str | None = None) -> str:
    from hf_nmt_interp.text.pharaoh import format_links

    if kind == "json":
        return json.dumps({name: row.get(name) or [] for name in _SHOWN}, ensure_ascii=False)
    return format_links({(i, j) for i, j in row.get("links") or ()})


class _Aligner(Job):
    """Aligns lines with one translator, or with two and symmetrises the links."""

    merged_formats = ("pharaoh", *Job.merged_formats)
    columns: ClassVar[dict[str, Any]] = {
        "source": list[str], "target": list[str], "target_text": str, "links": list[list[int]], "scores": list[float]
    }  # fmt: skip

    def __init__(self, args: argparse.Namespace) -> None:
        import numpy as np

        from hf_nmt_interp.analysis.alignment import align_words, at_least
        from hf_nmt_interp.analysis.symmetrization import symmetrize
        from hf_nmt_interp.attribution.registry import parse_method_settings, parse_methods
        from hf_nmt_interp.cli.loading import load, load_for
        from hf_nmt_interp.text.tokens import encode_target

        self.heuristic, self.joint, self.least = args.symmetrize or "grow-diag-final", args.joint, args.least or 0.0
        symmetrize(set(), set(), self.heuristic)  # wrong names are reported early
        at_least(set(), np.zeros((0, 0)), self.least)
        methods = parse_methods(args.method) if args.method else []
        if args.set and len(methods) > 1:
            example = "attention+saliency:aggregate=li2016"
            raise InputError(
                "--set", None, f"with several methods, write each setting after its method, e.g. {example}"
            )
        if args.set and not methods:
            raise InputError("--set", None, "needs --method, the method it is for")
        self.settings: dict[str, Any] = parse_method_settings(methods[0][0], args.set) if methods else {}
        self.settings |= {name: getattr(args, name) for name in ("method", "extraction", "threshold", "batch_size")}
        self.generate, self.splitting = generate_options(args), splitting(args)
        self.unchanged = all(getattr(args, name) == value for name, value in PHARAOH.items())  # words of the file
        back = args.target_lang, args.source_lang, args.reverse_source_prefix, args.dtype
        self.forward = load_for(args)
        self.backward = load(args.reverse_model, args.device, *back) if args.reverse_model else None
        self.own: list[dict[str, Any]] = [{}, {}]  # settings of each direction
        for translator in (self.forward, self.backward) if self.backward else (self.forward,):
            align_words(*translator, [], [], **self.settings)  # wrong settings too
            if args.target or self.backward or (args.dataset and len(args.fields) > 1):
                encode_target(translator[1], "x")  # and missing languages
        if not methods:
            lines = [line for line in args.head if not isinstance(line, InputError) and all(map(str.strip, line))]
            self._choose(lines, cached=not args.shards)  # shards may be written on several machines
            if more := PRESETS[args.preset or "fast"]:
                self._combine(more)

    def _choose(self, lines: list[Texts], cached: bool) -> None:
        """Align by each translator's alignment head, or its best attention, chosen on these lines if not known."""
        from hf_nmt_interp.analysis.alignment import own_method
        from hf_nmt_interp.decoding.pairs import Pairs

        size = self.settings["batch_size"]
        translators = [self.forward, *([self.backward] if self.backward else [])]
        choices = [own_method(model, None, size, cached) for model, _ in translators]
        if not all(choices) and lines:

            def encode(some: list[Texts]) -> list[Any]:
                sources, targets = self._sides(some)
                translating = {"batch_size": size, "generate": self.generate} if targets is None else {}
                return list(Pairs.make(*self.forward, sources, targets, self.splitting, **translating))

            pairs = [pair for pair in try_rows(encode, lines) if not isinstance(pair, InputError)]
            sets = [Pairs(self.forward[0], pairs)]
            if self.backward:
                sources, targets = (
                    [(getattr(pair, side).text, getattr(pair, side).words) for pair in pairs]
                    for side in ("source", "target")
                )
                sets.append(Pairs.force(*self.backward, *self._turned(sources, targets)))
            choices = [own_method(model, s, size, cached) for (model, _), s in zip(translators, sets, strict=True)]
        if all(choices):
            self.own = [{"method": choice[0], **choice[1]} for choice in choices if choice]

    def _combine(self, more: str) -> None:
        """Align by the chosen method of each direction and further methods."""
        if not all(self.own[: 2 if self.backward else 1]):
            raise InputError("--preset", None, "no attention can be chosen: the first 40 lines have no words")
        for n, own in enumerate(self.own):
            settings = ",".join(f"{name}={json.dumps(value)}" for name, value in own.items() if name != "method")
            self.own[n] = {"method": f"{own.get('method')}{':' * bool(settings)}{settings}{more}"}

    def rows(self, lines: list[Texts]) -> list[Row]:
        rows = []
        for found, shares in self.pairs(lines):
            links = sorted(found.links)
            row = {"source": found.source_words, "target": found.target_words, "target_text": found.target_text}
            scores = [round(float(shares[j, i]), 4) for i, j in links]
            rows.append(row | {"links": [list(link) for link in links], "scores": scores})
        return rows

    def pairs(self, lines: list[Texts]) -> "list[tuple[WordAlignment, np.ndarray]]":
        """Alignments of lines with the shares [target words, source words] of links; raises if a line is refused."""
        from hf_nmt_interp.analysis.alignment import align_words, at_least

        options = self.settings | self.own[0] | {"generate": self.generate} | self.splitting
        found = align_words(*self.forward, *self._sides(lines), **options)
        if self.backward is None:
            return [(replace(a, links=at_least(a.links, a.soft, self.least)), a.soft) for a in found]
        sources = [(line[0], a.source_words) for line, a in zip(lines, found, strict=True)]
        sides = self._turned(sources, [(a.target_text, a.target_words) for a in found])
        other = align_words(*self.backward, *sides, **self.settings | self.own[1])
        return [self._both(a, b) for a, b in zip(found, other, strict=True)]

    def _sides(self, lines: list[Texts]) -> tuple[list[Any], list[Any] | None]:
        """Sources, and targets if they are given."""
        split = _WORD.findall if self.unchanged else str
        sides = [[split(line) for line in side] for side in zip(*lines, strict=True)]
        return sides[0], sides[1] if len(sides) > 1 else None

    def _turned(self, sources: list[Spelt], targets: list[Spelt]) -> tuple[list[Any], list[Any]]:
        """Both sides for the other direction, which reads the same texts with the same words."""
        from hf_nmt_interp.text.tokens import encode_source, encode_target, find_words

        if self.unchanged:
            return [words for _, words in targets], [words for _, words in sources]
        tokenizer = (self.backward or self.forward)[1]
        return (
            [encode_source(tokenizer, text, spans=find_words(text, words)) for text, words in targets],
            [encode_target(tokenizer, text, spans=find_words(text, words)) for text, words in sources],
        )

    def _both(self, a: "WordAlignment", b: "WordAlignment") -> "tuple[WordAlignment, np.ndarray]":
        """One alignment of two directions, and the shares of links."""
        from hf_nmt_interp.analysis.alignment import at_least, joint_links, joint_scores, mutual_shares
        from hf_nmt_interp.analysis.symmetrization import flip, symmetrize

        if self.joint:
            how = self.settings["extraction"], self.settings["threshold"], self.least
            scores = joint_scores(a.scores, b.scores)
            links, shares = joint_links(a.scores, b.scores, self.heuristic, *how), mutual_shares(scores, scores.T)
        else:
            shares = mutual_shares(a.scores, b.scores)
            links = at_least(symmetrize(a.links, flip(b.links), self.heuristic), shares, self.least)
        return replace(a, links=links), shares

    @staticmethod
    def write(rows: Iterator[Row], kind: str, file: TextIO) -> None:
        if kind == "json":
            write_json(rows, file)
        else:
            file.writelines(_format(row) + "\n" for row in rows)


JOB = _Aligner
