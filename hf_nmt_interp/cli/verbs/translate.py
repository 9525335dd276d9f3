"""Translate sentences.

The default format is plain text with one translation per line, in the order of the input; an empty line stays empty.
json has one object per line and tsv has a header, both with the fields source and translation.

With --markup, sentences can contain inline tags (`<b>...</b>`, `<br/>`) and placeholders (`{0}`, `%s`). They are
removed before translation and inserted at the right target words by word alignment. A line whose tags are not nested
is written untranslated, with the reason on stderr; with --strict the run stops there.

Examples:
  hf-nmt-interp translate "The cat is sleeping on the sofa."
  hf-nmt-interp translate --model demo:en-de --beams 8 --format json "Where is the station?" "I like tea."
  hf-nmt-interp translate --markup --align attention "I <b>really</b> like <a href='#'>green tea</a>."
"""

import argparse
import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from hf_nmt_interp.cli import arguments
from hf_nmt_interp.cli.output import Row, in_chunks, open_output, write_rows
from hf_nmt_interp.cli.sharded_run import Refusals, try_rows
from hf_nmt_interp.errors import InputError, rows_among


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_translating(parser, batch_size=32, formats=("text", *arguments.OUTPUT_FORMATS))
    group = parser.add_argument_group("mark-up")
    group.add_argument("--markup", action="store_true", help="transfer inline tags and placeholders")
    group.add_argument("--strict", action="store_true", help="with --markup: stop at the first invalid line")
    group.add_argument("--align", metavar="METHOD", help="method used to align words (default: the same as `align`)")


def run(args: argparse.Namespace) -> None:
    for flag in () if args.markup else ("align", "strict"):
        if getattr(args, flag):
            raise InputError(f"--{flag}", None, "needs --markup", "add it, or leave this out")
    kind = arguments.chosen_format(args)
    streams = args.output is None and kind in ("text", "json", "tsv")
    rows = _rows(args, streams)
    if kind != "text":
        write_rows(rows, args, title="Translations")
        return
    with open_output(args.output) as file:
        for row in rows:
            file.write(row["translation"] + "\n")
            file.flush()


def _chunks(args: argparse.Namespace, streams: bool) -> Iterator[list[tuple[int, str]]]:
    """Sentences with their numbers, in chunks, with a progress bar if the total is known."""
    size, sentences = 4 * args.batch_size, enumerate(arguments.stream_sentences(args))
    if "-" in (args.input, *args.sentences) or (args.input and not os.path.isfile(args.input)):
        while chunk := list(islice(sentences, size)):
            yield chunk
        return
    total = sum(1 for _ in arguments.stream_sentences(args))  # bad lines are reported early
    for rows in in_chunks(range(total), size, "Translating", streams):
        yield list(islice(sentences, len(rows)))


def _rows(args: argparse.Namespace, streams: bool) -> Iterator[Row]:
    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.decoding.pairs import Pairs, encode_sources

    options = arguments.generate_options(args)
    chunks = _chunks(args, streams)
    first = next(chunks)  # wrong input is reported before the model is loaded
    model, tokenizer = load_for(args)
    if args.markup:
        yield from _marked_up(args, chain([first], chunks), model, tokenizer)
        return
    for chunk in chain([first], chunks):
        with rows_among([number for number, _ in chunk]):
            encoded = encode_sources(model, tokenizer, [sentence for _, sentence in chunk])
        full = [(number, source) for (number, text), source in zip(chunk, encoded, strict=True) if text.strip()]
        with rows_among([number for number, _ in full]):
            found = Pairs.translate(model, tokenizer, [source for _, source in full], args.batch_size, options)
        pairs = iter(found)
        for _, sentence in chunk:
            target = next(pairs).ids.target_ids if sentence.strip() else []
            yield {"source": sentence, "translation": tokenizer.decode(target, skip_special_tokens=True)}


def _marked_up(
    args: argparse.Namespace, chunks: Iterable[list[tuple[int, str]]], model: Any, tokenizer: Any
) -> Iterator[Row]:
    from hf_nmt_interp.analysis.markup import transfer_markup

    options = {"method": args.align, "batch_size": args.batch_size, "generate": arguments.generate_options(args)}
    transfer_markup([], model, tokenizer, **options)  # wrong settings are reported early
    report = Refusals(args, "wrote it untranslated", "", None)
    for chunk in chunks:
        texts = [sentence for _, sentence in chunk]
        found = try_rows(lambda some: transfer_markup(some, model, tokenizer, **options), texts)
        for (number, sentence), translation in zip(chunk, found, strict=True):
            if isinstance(translation, InputError):
                if translation.argument not in ("source", "sources"):  # not about this line
                    raise translation
                report.row(number + 1, translation)
                translation = sentence
            yield {"source": sentence, "translation": translation}
