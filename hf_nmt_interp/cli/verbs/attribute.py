"""Explain translations: how much each source word and each earlier target word contributed to each target word.

The model translates, or is led through given translations (--target, --target-file).

table  one line a target word: share of the source, the source word it comes from, log-probability
json   one object a line: tokens, words, the arrays source, prefix, start, source_contribution, log_probs
tsv    one line a score: sentence, step, target, side (source, prefix or start), position, token, score
html   a self-contained page with heat maps
Indices count from 0.

Examples:
  hf-nmt-interp attribute "The cat is sleeping on the sofa."
  hf-nmt-interp attribute --format json --tokens "I like tea." --target "Ich mag Tee."
  hf-nmt-interp attribute --method lrp --set alpha=0.5 --set beta=0.5 --output report.html "I like tea."
  hf-nmt-interp attribute --method attention --set layer=1 --set head=0 --format tsv "I like tea."
  hf-nmt-interp attribute --list-methods
"""

import argparse
import inspect
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args, get_origin

from hf_nmt_interp.cli.arguments import (
    add_translating,
    chosen_format,
    generate_options,
    read_file,
    read_sentences,
)
from hf_nmt_interp.cli.output import in_chunks, open_output, write_json, write_tsv
from hf_nmt_interp.errors import InputError

if TYPE_CHECKING:
    from hf_nmt_interp.attribution.result import AttributionResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sentences, targets, method, model, decoding and output."""
    add_targets(parser)
    group = add_method(parser)
    group.add_argument("--list-methods", action="store_true", help="print the methods and their settings, and stop")
    add_translating(parser)
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--words", dest="level", action="store_const", const="word", help="scores of words (default)")
    level.add_argument("--tokens", dest="level", action="store_const", const="token", help="scores of subwords")
    parser.set_defaults(level="word")


def add_targets(parser: argparse.ArgumentParser) -> None:
    """`--target` or `--target-file`."""
    targets = parser.add_mutually_exclusive_group()
    targets.add_argument("--target", action="append", metavar="TEXT", help="translation to explain; one a sentence")
    targets.add_argument("--target-file", metavar="FILE", help="file with one translation a line")


def add_method(parser: argparse.ArgumentParser) -> Any:
    """`--method` and `--set`; the group they stand in."""
    group = parser.add_argument_group("method")
    group.add_argument("--method", default="lrp", metavar="NAME", help="default: %(default)s; see --list-methods")
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the method; may be repeated"
    )
    return group


def run(args: argparse.Namespace) -> None:
    """Explain and write."""
    if args.list_methods:
        list_methods()
        return
    kind = chosen_format(args)
    results = explained(args, streams=args.output is None and kind != "html")
    with open_output(args.output) as file:
        if kind == "html":
            from hf_nmt_interp.report.html import render

            file.write(render(list(results)))  # the page can switch between words and subwords
            return
        from hf_nmt_interp.report.records import record, scores

        shown = (result.to_words() if args.level == "word" else result for result in results)
        if kind == "json":
            write_json(({"sentence": i, **record(result)} for i, result in enumerate(shown)), file)
        elif kind == "tsv":
            write_tsv(({"sentence": i, **row} for i, result in enumerate(shown) for row in scores(result)), file)
        else:
            _print(shown, file)


def _print(results: "Iterator[AttributionResult]", file: Any) -> None:
    from rich.console import Console

    from hf_nmt_interp.report.terminal import legend, show

    console = Console(file=file)
    for result in results:
        show(result, console)
    console.print(legend(result))


def explained(args: argparse.Namespace, streams: bool = False) -> "Iterator[AttributionResult]":
    """Results of the sentences, targets, method and model of the arguments; `streams` as of `in_chunks`."""
    sentences = read_sentences(args)
    targets = args.target if args.target_file is None else read_file(args.target_file)[: args.limit]
    if targets is not None and len(targets) != len(sentences):
        raise InputError(f"--target: {len(targets)} targets for {len(sentences)} sentences; one each is needed")
    from hf_nmt_interp.cli.loading import load_for

    settings = parse_settings(args.method, args.set)
    model, tokenizer = load_for(args, sentences)
    from hf_nmt_interp.attribution.api import attribute

    options: dict[str, Any] = {"batch_size": args.batch_size, "generate": generate_options(args)}
    for rows in in_chunks(range(len(sentences)), 4 * args.batch_size, "Explaining", streams):
        some = None if targets is None else [targets[i] for i in rows]
        yield from attribute(model, tokenizer, [sentences[i] for i in rows], some, args.method, **options, **settings)


def method_settings(method: str) -> dict[str, inspect.Parameter]:
    """Settings of a method, from its signature."""
    from hf_nmt_interp.attribution import METHODS

    if method not in METHODS:
        raise InputError(f"--method: {method!r} is not one of {', '.join(METHODS)}")
    parameters = dict(inspect.signature(METHODS[method]).parameters)
    parameters.pop("model")
    return parameters


def list_methods() -> None:
    """Print every method, its first line and its settings with their defaults."""
    from hf_nmt_interp.attribution import METHODS

    for name, method in METHODS.items():
        print(f"{name}: {(method.__doc__ or '').splitlines()[0]}")
        for setting, parameter in method_settings(name).items():
            print(f"    --set {setting}={json.dumps(parameter.default)}")


def parse_settings(method: str, given: list[str], argument: str = "--set") -> dict[str, Any]:
    """Settings from `name=value`, values as in JSON, checked against the method's signature.

    Args:
        method: whose settings they are.
        given: the texts.
        argument: where they were given, for messages.

    >>> parse_settings("attention", ["layer=2", "head=null"])
    {'layer': 2, 'head': None}
    """
    known, settings = method_settings(method), {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{argument}: {text!r} is not name=value, e.g. {next(iter(known))}=...")
        if name not in known:
            raise InputError(f"{argument}: method {method!r} has no setting {name!r}; it has {', '.join(known)}")
        settings[name] = _value(f"{argument}: {name}", value, known[name].annotation)
    return settings


def _value(name: str, text: str, annotation: Any) -> Any:
    """A setting's value: JSON of a type that the annotation allows, else a string where it allows one."""
    allowed = get_args(annotation) or (annotation,)
    kinds = [str if isinstance(kind, str) else get_origin(kind) or kind for kind in allowed]  # Literals are strings
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    if type(value) is int and float in kinds and int not in kinds:
        value = float(value)
    if type(value) in kinds:
        return value
    if str in kinds:
        return text
    expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
    raise InputError(f"{name}={text} is not of type {expected}")
