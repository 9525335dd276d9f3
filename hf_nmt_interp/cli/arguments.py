"""Arguments that several verbs share, and functions that read them."""

import argparse
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from hf_nmt_interp.cli.paths import Figure, InputFile, OutputFile
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import Pair, read_lines, read_parallel
from hf_nmt_interp.text.pharaoh import Links, read_gold
from hf_nmt_interp.text.segmenters import WORDS, word_rule
from hf_nmt_interp.text.tokens import Punctuation, check_text

MODEL = "demo:en-de"
OUTPUT_FORMATS = ("table", "json", "tsv", "html")
_ENDINGS = {".json": "json", ".jsonl": "json", ".tsv": "tsv", ".csv": "csv", ".html": "html", ".htm": "html"}
_ENDINGS |= {".parquet": "parquet"}
_MOST_BEAMS = 1000  # more would not fit into memory
# how text is split into words: where people read it, and in Pharaoh files
DISPLAYED = {"words": "pieces", "punctuation": "separate"}
PHARAOH = {"words": "spaces", "punctuation": "attached"}
_LINES = ("text", "pharaoh")  # formats of files that may have any other extension, e.g. a language code,
_PICTURES = (*Figure.endings, ".jpg", ".jpeg")  # but not these


def positive(text: str) -> int:
    """An integer from 1 to 999999999."""
    if not re.fullmatch("0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not an integer from 1 to 999999999")
    return int(text)


def add_model(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """`--model` (a list of them, if `several`), `--device`, languages, prefix: the arguments of `loading.load`."""
    group = parser.add_argument_group("model")
    what = f"a bundled translator (demo:en-de, demo:de-en), a local folder or a Hub id (default: {MODEL})"
    if several:
        help = f"{what}; may be repeated to compare, also with a label, e.g. small=runs/small"
        group.add_argument("--model", action="append", metavar="[LABEL=]NAME", help=help)
    else:
        group.add_argument("--model", default=MODEL, metavar="NAME", help=what)
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 ... (default: a GPU if there is one)")
    help = "type of the weights: float64, bfloat16 or float16 (default: float32)"
    group.add_argument("--dtype", metavar="TYPE", help=help)
    group.add_argument(
        "--source-lang", metavar="CODE", help="source language of multilingual models, e.g. eng_Latn for NLLB"
    )
    group.add_argument("--target-lang", metavar="CODE", help="target language of multilingual models, e.g. deu_Latn")
    help = "text before every source, e.g. 'translate English to German: ' for T5; explained, but not a word"
    group.add_argument("--source-prefix", metavar="TEXT", help=help)


def add_decoding(parser: argparse.ArgumentParser, batch_size: int) -> None:
    """`--beams`, `--length-penalty`, `--seed` and `--batch-size`."""
    group = parser.add_argument_group("decoding")
    group.add_argument("--beams", type=positive, metavar="N", help="beam size (default: the model's own)")
    help = "exponent of the length that divides beam scores (default: the model's own)"
    group.add_argument("--length-penalty", type=float, metavar="P", help=help)
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="for models that sample (default: %(default)s)"
    )
    group.add_argument("--batch-size", type=positive, default=batch_size, metavar="N", help="default: %(default)s")


def add_sentences(parser: argparse.ArgumentParser) -> None:
    """Sentences as arguments, `-` or `--input`, and `--limit`."""
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="sentences to translate, or - for stdin")
    parser.add_argument("--input", type=InputFile, metavar="FILE", help="one sentence per line, UTF-8 (- for stdin)")
    parser.add_argument("--limit", type=positive, metavar="N", help="use only the first N sentences")


def add_splitting(
    parser: argparse._ActionsContainer, level: argparse._ActionsContainer | None = None, by_format: bool = False
) -> None:
    """`--words` (in the group `level`, if given) and `--punctuation`: the arguments of `splitting`.

    With `by_format` they are None by default, and the verb chooses `DISPLAYED` or `PHARAOH`.
    """
    shown = DISPLAYED
    if by_format:
        shown = {name: f"{value} for JSON, otherwise {PHARAOH[name]}" for name, value in DISPLAYED.items()}
    help = f"what a word is in text without spaces: {', '.join(WORDS)} (default: {shown['words']})"
    (level or parser).add_argument("--words", nargs="?", const="pieces", choices=WORDS, metavar="NAME", help=help)
    help = "separate: punctuation marks are words; attached: they belong to the word they touch"
    help = f"{help} (default: {shown['punctuation']})"
    parser.add_argument("--punctuation", choices=get_args(Punctuation), help=help)
    parser.set_defaults(**dict.fromkeys(DISPLAYED) if by_format else DISPLAYED)


def add_reverse_prefix(parser: argparse._ActionsContainer) -> None:
    """`--reverse-source-prefix`, beside `--reverse-model`."""
    help = "like --source-prefix, for --reverse-model"
    parser.add_argument("--reverse-source-prefix", metavar="TEXT", help=help)


def add_gold(parser: argparse.ArgumentParser) -> None:
    """`--gold` and `--gold-base`: the arguments of `read_gold_pairs`."""
    group = parser.add_argument_group("gold links")
    names = ("LINKS", "SOURCE", "TARGET")
    help = "gold links and their sentences, with words separated by spaces; --model translates SOURCE to TARGET"
    group.add_argument("--gold", nargs=3, type=InputFile, required=True, metavar=names, help=help)
    group.add_argument(
        "--gold-base", type=int, choices=(0, 1), default=0, help="number of the first word in LINKS (default: 0)"
    )


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str] = OUTPUT_FORMATS) -> None:
    """`--format`, whose default is the first one, and `--output`."""
    group = parser.add_argument_group("output")
    help = f"default: from the extension of --output, else {formats[0]}"
    group.add_argument("--format", choices=formats, help=help)
    group.add_argument(
        "--output", type=OutputFile, metavar="FILE", help="written only when complete (default: stdout)"
    )
    parser.set_defaults(formats=formats)


def add_figure(parser: argparse._ActionsContainer, drawn: str, flag: str = "--figure") -> None:
    """A figure with its numbers."""
    help = f"draw {drawn} to an .svg, .pdf or .png file, and write the numbers to a .csv file next to it"
    parser.add_argument(flag, type=Figure, metavar="FILE", help=help)


def add_translating(
    parser: argparse.ArgumentParser,
    batch_size: int = 16,
    formats: Sequence[str] = OUTPUT_FORMATS,
    several: bool = False,
) -> None:
    """Sentences, model (or `several`), decoding and output: for verbs that translate."""
    add_sentences(parser)
    add_model(parser, several)
    add_decoding(parser, batch_size)
    add_output(parser, formats)


def chosen_format(args: argparse.Namespace) -> str:
    """The format from --format, or the output's extension, or the verb's first; raises for other extensions."""
    first = args.formats[0]
    ending = Path(args.output or "").suffix.lower()
    if (asked := getattr(args, "format", None)) or not ending:
        return asked or first
    known = {end: kind for end, kind in _ENDINGS.items() if kind in args.formats}
    if first == "table":
        known |= {".txt": first}
    if ending in _PICTURES and first in _LINES:
        problem = "has the extension of an image, but the output is text"
        raise InputError("--output", args.output, problem, "use another extension, or set --format")
    if ending not in known and first not in _LINES:
        *endings, last = known
        problem = f"does not end in {', '.join(endings)} or {last}"
        remedy = "use one of these extensions" + ", or set --format" * (len(args.formats) > 1)
        raise InputError("--output", args.output, problem, remedy)
    return known.get(ending, first)


def labelled(names: Sequence[str], argument: str) -> dict[str, str]:
    """Models by label, from texts `LABEL=NAME` or `NAME`; `argument` is named in errors.

    >>> labelled(["runs/small", "base=runs/2"], "--model")
    {'small': 'runs/small', 'base': 'runs/2'}
    """
    found: dict[str, str] = {}
    for text in names:
        label, equals, name = text.partition("=")
        if not equals or "/" in label:  # a path may contain =
            label, name = Path(text).name, text
        if not name:
            raise InputError(argument, text, "does not name a model", "give a folder, a Hub id or demo:en-de")
        if label in found:
            raise InputError(argument, None, f"two models are called {label!r}", f"give labels, e.g. {label}2={name}")
        found[label] = name
    return found


def splitting(args: argparse.Namespace) -> dict[str, Any]:
    """The argument `splitting` of `Pairs`; verbs without `add_splitting` leave punctuation attached."""
    words, punctuation = getattr(args, "words", "pieces"), getattr(args, "punctuation", "attached")
    return {"words": word_rule(words), "punctuation": punctuation}


def generate_options(args: argparse.Namespace) -> dict[str, float]:
    """Arguments of `generate()`."""
    if args.beams is not None and args.beams > _MOST_BEAMS:
        raise InputError(
            "--beams", args.beams, f"exceeds the maximum of {_MOST_BEAMS:,}", "typical values are 1 to 10"
        )
    given = {"num_beams": args.beams, "length_penalty": args.length_penalty, "seed": args.seed}
    return {name: value for name, value in given.items() if value is not None}


def stream_sentences(args: argparse.Namespace) -> Iterator[str]:
    """Sentences from the arguments, or one by one from a file or stdin."""
    if args.sentences and args.input:
        raise InputError("--input", None, "sentences were given as arguments too", "give only one of them")
    found = read_lines(args.input or "-") if args.input or args.sentences == ["-"] else args.sentences
    number = 0
    for number, sentence in enumerate(islice(found, args.limit), 1):
        check_text(f"sentence {number}", sentence)
        yield sentence
    if not number:
        raise InputError("no sentences", None, "give them as arguments, in a file with --input, or - for stdin")


def read_sentences(args: argparse.Namespace) -> list[str]:
    """All of `stream_sentences`."""
    return list(stream_sentences(args))


def read_targets(args: argparse.Namespace) -> list[str] | None:
    """Given translations, from `--target` or `--target-file`; None if there are none."""
    if args.target_file is not None:
        return read_file(args.target_file)[: args.limit]
    for number, target in enumerate(args.target or [], 1):
        check_text(f"--target {number}", target)
    return args.target


def read_gold_pairs(args: argparse.Namespace) -> tuple[list[Pair], tuple[list[Links], list[Links]]]:
    """Sentence pairs of `--gold`, and their sure and possible links."""
    links, source, target = args.gold
    pairs = list(read_parallel(source, target))
    gold = read_gold(links, args.gold_base, pairs)
    if not any(gold[1]):
        raise InputError("--gold", None, f"{links} has no links", "give a line of them for each sentence pair")
    return pairs, gold


def read_file(path: str) -> list[str]:
    """Lines of a UTF-8 file, `-` for stdin."""
    return list(read_lines(path))
