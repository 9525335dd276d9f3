"""Explain translations: how much each source word and each earlier target word contributed to each target word.

The model translates, or force decodes given translations (--target, --target-file).

table  links: small numbers show which source word each target word translates, as `align` does; relevance: one line
       per target word with its source share, the most relevant source word and earlier target word
json   one object per line: tokens, words, the arrays source, prefix, start, source_contribution, log_probs
tsv    one line per score: sentence, step, target, side (source, prefix or start), position, token, score
html   a self-contained page with heat maps; --heads adds a browser of the attention heads
Indices start at 0. Use --shards to explain whole corpora; `merge` joins the shards.

--method and --model may be repeated: all methods of a model explain the same translation. A page shows them on one
card, where you can switch between them or show one below the other; json and tsv name model and method in each line.

Examples:
  hf-nmt-interp attribute "The cat is sleeping on the sofa."
  hf-nmt-interp attribute --format json --tokens "I like tea." --target "Ich mag Tee."
  hf-nmt-interp attribute --method lrp --set alpha=0.5 --set beta=0.5 --output report.html "I like tea."
  hf-nmt-interp attribute --method lrp --method attention:layer=0,head=1 --output methods.html "I like tea."
  hf-nmt-interp attribute --heads --output heads.html "I like tea."
  hf-nmt-interp attribute --model demo:en-de --model mine=demo:en-de --output models.html "I like tea."
  hf-nmt-interp attribute --method attention --set layer=1 --set head=0 --format tsv "I like tea."
  hf-nmt-interp attribute --method attention --input train.en --target-file train.de --shards runs/explained
  hf-nmt-interp attribute --target "Ich mag Tee." --contrast Tee=Kaffee "I like tea."
  hf-nmt-interp attribute --list-methods
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from hf_nmt_interp.cli import arguments
from hf_nmt_interp.cli.output import in_chunks, open_output, write_json, write_tsv
from hf_nmt_interp.cli.paths import InputFile
from hf_nmt_interp.cli.sharded_run import Translator, add_corpus, refuse, run_corpus
from hf_nmt_interp.cli.shards import Row
from hf_nmt_interp.errors import InputError, rows_among
from hf_nmt_interp.text.corpus import Texts
from hf_nmt_interp.text.progress import estimate

if TYPE_CHECKING:
    from hf_nmt_interp.analysis.head_maps import HeadMaps
    from hf_nmt_interp.attribution.parsing import Named
    from hf_nmt_interp.attribution.result import AttributionResult

    Explained = tuple[int, str, AttributionResult]
    Heads = dict[int, list[HeadMaps]]

METHOD = "lrp"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_targets(parser)
    add_contrast(parser)
    group = add_method(parser, several=True)
    group.add_argument("--list-methods", action="store_true", help="print the methods and their settings, and exit")
    arguments.add_translating(parser, several=True)
    level = parser.add_mutually_exclusive_group()
    arguments.add_splitting(parser, level)
    level.add_argument(
        "--tokens", dest="level", action="store_const", const="token", help="show scores of subwords, not words"
    )
    parser.set_defaults(level="word")
    help = "add a browser of attention heads to the page"
    parser.add_argument("--heads", action="store_true", default=None, help=help)
    add_corpus(parser)


def add_targets(parser: argparse.ArgumentParser) -> None:
    """`--target` or `--target-file`."""
    targets = parser.add_mutually_exclusive_group()
    targets.add_argument("--target", action="append", metavar="TEXT", help="translation to explain; one per sentence")
    targets.add_argument("--target-file", type=InputFile, metavar="FILE", help="file with one translation per line")


def add_contrast(parser: argparse.ArgumentParser) -> None:
    """`--contrast`."""
    help = (
        "explain why this translation and not TEXT; why WORD and not OTHER with WORD=OTHER; why the token at INDEX "
        "(from 0) and not TOKEN with '#INDEX=TOKEN'; one per sentence"
    )
    parser.add_argument("--contrast", action="append", metavar="TEXT", help=help)
    help = "compare the first token that differs, or all of them (default: %(default)s)"
    parser.add_argument("--contrast-steps", default="first", choices=("first", "all"), help=help)


def add_method(parser: argparse.ArgumentParser, several: bool = False) -> Any:
    """`--method` (a list of them, if `several`) and `--set`; returns their group."""
    group = parser.add_argument_group("method")
    if several:
        help = f"may be repeated to compare (default: {METHOD}); see --list-methods"
        group.add_argument("--method", action="append", metavar="NAME[:SETTING=VALUE,...]", help=help)
    else:
        group.add_argument("--method", default=METHOD, metavar="NAME", help="default: %(default)s")
    help = "a setting of the method; may be repeated"
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=help)
    return group


def run(args: argparse.Namespace) -> None:
    if args.list_methods:
        list_methods()
        return
    if args.shards:
        refuse(args, "target", "output", "format", "contrast", "heads")
        methods, names = asked_methods(args), list(dict.fromkeys(args.model or [arguments.MODEL]))
        if len(methods) * len(names) > 1:
            raise InputError(
                "--shards", None, "supports only one method and one model", "run each of them with its own folder"
            )
        run_corpus(args, (args.input, args.target_file), lambda: Explain(args, methods[0], names[0]))
        return
    kind = arguments.chosen_format(args)
    methods, models = asked_methods(args), arguments.labelled(args.model or [arguments.MODEL], "--model")
    if args.heads and kind != "html":
        raise InputError("--heads", None, "only a page shows them", "add --output page.html")
    links = kind in ("table", "html") and args.level == "word"
    heads: Heads | None = {} if args.heads else None
    streams = args.output is None and kind != "html"
    results = explained(args, methods, models, streams=streams, links=links, heads=heads)
    with open_output(args.output) as file:
        if kind == "html":
            file.write(_page(results, list(models), heads))
        else:
            _write(results, list(models), len(methods), args.level, kind, file)
    if kind == "html" and args.output and sys.stderr.isatty():
        print(f"Wrote {args.output}: open it in a browser", file=sys.stderr)


def _page(results: "Iterator[Explained]", labels: list[str], heads: "Heads | None") -> str:
    from hf_nmt_interp.report.html import render

    by_model: dict[str, list[AttributionResult]] = {label: [] for label in labels}
    numbers = []
    for i, label, result in results:
        by_model[label].append(result)  # of subwords: the page can switch to words
        numbers += [i] * (label == labels[0])
    maps = None if heads is None else [heads[i] for i in numbers]
    return render(by_model if len(labels) > 1 else by_model[labels[0]], heads=maps)


def _write(
    results: "Iterator[Explained]", labels: list[str], methods: int, level: str, kind: str, file: TextIO
) -> None:
    shown = ((i, label, result.to_words() if level == "word" else result) for i, label, result in results)
    compares = len(labels) * methods > 1
    if kind == "table":
        _print(shown, file, compares)
        return
    from hf_nmt_interp.report.records import method_name, record, scores

    def named(row: Row, i: int, label: str, result: "AttributionResult") -> Row:
        return {"sentence": i} | ({"model": label, "method": method_name(result)} if compares else {}) | row

    if kind == "json":
        write_json((named(record(result), i, label, result) for i, label, result in shown), file)
    else:
        write_tsv((named(row, i, label, result) for i, label, result in shown for row in scores(result)), file)


def _print(results: "Iterator[Explained]", file: Any, named: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from hf_nmt_interp.report.records import method_name
    from hf_nmt_interp.report.terminal import legend, show

    console = Console(file=file)
    last: dict[str, AttributionResult] = {}
    for _, label, result in results:
        if named:
            console.print(Text(f"{label}: {method_name(result)}", "bold"))
        show(result, console)
        last[method_name(result)] = result
    console.print(legend(*last.values()))


def asked_methods(args: argparse.Namespace) -> "list[Named]":
    """Methods and their settings, each once."""
    from hf_nmt_interp.attribution.registry import parse_method, parse_method_settings, word_settings

    texts = list(dict.fromkeys(args.method or [METHOD]))
    if args.set and len(texts) > 1:
        example = f"{texts[0]}:{args.set[0]}"
        raise InputError(
            "--set", None, f"is ambiguous with {len(texts)} methods; write it after its method: {example}"
        )
    methods = [parse_method(text) for text in texts]
    return [(name, word_settings(name, own | parse_method_settings(name, args.set))) for name, own in methods]


def explained(
    args: argparse.Namespace,
    methods: "list[Named]",
    models: dict[str, str],
    streams: bool = False,
    links: bool = False,
    heads: "Heads | None" = None,
) -> "Iterator[Explained]":
    """Yields (sentence number, model label, result) for each sentence, model and method.

    With `links` the results also have word links from the model's own attention. `heads` gets the maps of the first
    model's attention heads, by the sentence's number.
    """
    sentences = arguments.read_sentences(args)
    targets = arguments.read_targets(args)
    if targets is not None and len(targets) != len(sentences):
        raise InputError("--target", len(targets), f"targets for {len(sentences)} sentences", "give one per sentence")
    from hf_nmt_interp.analysis.alignment import own_links
    from hf_nmt_interp.analysis.head_maps import head_maps
    from hf_nmt_interp.attribution.api import explain
    from hf_nmt_interp.attribution.registry import make_method
    from hf_nmt_interp.attribution.scores import contrast_steps
    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.decoding.contrasts import contrasted
    from hf_nmt_interp.decoding.pairs import Pairs, encode_sources

    splitting = arguments.splitting(args)
    contrasts = _contrasts(args, len(sentences))
    asked: list[Any] = []  # errors are reported before the work starts
    for label, name in models.items():
        model, tokenizer = load_for(args, name)
        made = [(make_method(model, method, **settings), settings) for method, settings in methods]
        given: Any = encode_sources(model, tokenizer, sentences, splitting)
        if targets is not None:
            given = Pairs.force(model, tokenizer, given, targets, splitting)
        asked.append((label, model, tokenizer, made, given))

    def explain_rows(rows: Sequence[int]) -> "Iterator[Explained]":
        found: list[Any] = []
        for label, model, tokenizer, made, pairs in asked:
            chunk = pairs[rows[0] : rows[-1] + 1]
            if targets is None:
                with rows_among(rows):
                    options = args.batch_size, arguments.generate_options(args), splitting
                    chunk = Pairs.translate(model, tokenizer, chunk, *options)
            linked = own_links(model, chunk, args.batch_size) if links else [None] * len(chunk)
            for method, settings in made:
                if contrasts is not None:
                    steps = contrast_steps(settings, args.contrast_steps)
                    with rows_among(rows):
                        chunk = contrasted(chunk, tokenizer, [contrasts[i] for i in rows], steps, splitting)
                results = explain(method, chunk, args.batch_size, settings, choices=True)
                if heads is not None and not found:
                    heads.update((i, head_maps(model, result)) for i, result in zip(rows, results, strict=True))
                both = zip(rows, results, linked, strict=True)
                found.append([(i, label, replace(result, links=own)) for i, result, own in both])
        return chain(*zip(*found, strict=True))

    middle = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))[len(sentences) // 2]
    names = ", ".join(dict.fromkeys(name for name, _ in methods))
    estimate(names, lambda: explain_rows([middle]), len(sentences))
    for rows in in_chunks(range(len(sentences)), 4 * args.batch_size, "Explaining", streams):
        yield from explain_rows(rows)


def _contrasts(args: argparse.Namespace, sentences: int) -> list[Any] | None:
    """The contrast of each sentence, if there is one."""
    given = getattr(args, "contrast", None)
    if given is None:
        return None
    if len(given) != sentences:
        raise InputError("--contrast", len(given), f"contrasts for {sentences} sentences", "give one per sentence")
    return [_contrast(text, row) for row, text in enumerate(given)]


def _contrast(text: str, row: int) -> Any:
    """A contrast as `contrasted` takes it: #INDEX=TOKEN, WORD=OTHER, or another translation."""
    if match := re.fullmatch(r"#(-?\d+)=(.*)", text):
        if not match[2]:
            raise InputError("--contrast", text, "has no token after the index", 'write e.g. "#2=▁Kaffee"', row)
        return {int(match[1]): match[2]}
    match = re.fullmatch(r"([^\s=]+)=([^=]+)", text)
    return {match[1]: match[2]} if match else text


def list_methods() -> None:
    """Print every method with its summary, its settings and their defaults."""
    from hf_nmt_interp.attribution import METHODS
    from hf_nmt_interp.attribution.registry import method_settings, word_settings

    for name, method in METHODS.items():
        print(f"{name}: {(method.__doc__ or '').splitlines()[0]}")
        defaults = {setting: parameter.default for setting, parameter in method_settings(name).items()}
        for setting, value in (defaults | word_settings(name, {})).items():
            print(f"    --set {setting}={json.dumps(value)}")


class Explain(Translator):
    """Explanations of translations as rows."""

    _parts: ClassVar[Any] = {"tokens": list[str], "words": list[str], "word_ids": list[int], "special": list[bool]}
    columns: ClassVar[Any] = {
        "method": str, "level": str,
        **{f"source_{name}": kind for name, kind in _parts.items()},
        **{f"target_{name}": kind for name, kind in _parts.items()},
        "source": list[list[float]], "prefix": list[list[float]], "start": list[float],
        "source_contribution": list[float], "log_probs": list[float], "conservation_gap": float,
    }  # fmt: skip

    def __init__(self, args: argparse.Namespace, method: "Named", model: str) -> None:
        from hf_nmt_interp.attribution.registry import make_method

        super().__init__(args, model)
        self.method, self.settings = method
        make_method(self.model, self.method, **self.settings)  # wrong settings are reported early

    def results(self, lines: list[Texts]) -> list[Any]:
        """Results of lines, in one batch."""
        from hf_nmt_interp.attribution.api import attribute

        options = {"batch_size": len(lines), "generate": arguments.generate_options(self.args)}
        options |= arguments.splitting(self.args)
        return attribute(self.model, self.tokenizer, *self.checked(lines), self.method, **options, **self.settings)  # type: ignore[call-overload]

    def rows(self, lines: list[Texts]) -> list[Row]:
        from hf_nmt_interp.report.records import record

        found = self.results(lines)
        shown = [record(result.to_words() if self.args.level == "word" else result) for result in found]
        return [{name: row[name] for name in self.columns} for row in shown]  # settings are in run.json


JOB = Explain
