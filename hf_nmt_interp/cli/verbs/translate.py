"""Translate sentences.

The default format is plain text, one translation a line in the order of the input; an empty line stays empty. json is
one object a line and tsv has a header, both with the fields source and translation.

With --markup the sentences may have inline tags (`<b>...</b>`, `<br/>`) and placeholders (`{0}`, `%s`), which are
taken out before the translation and put to the right target words by word alignment. A line whose tags are not nested
is written untranslated, with the reason on stderr; with --strict the run stops there.

Examples:
  hf-nmt-interp translate "The cat is sleeping on the sofa."
  hf-nmt-interp translate --model demo:en-de --beams 8 --format json "Where is the station?" "I like tea."
  hf-nmt-interp translate --markup --align attention "I <b>really</b> like <a href='#'>green tea</a>."
"""

import argparse
from collections.abc import Iterator
from typing import Any

from hf_nmt_interp.cli import arguments
from hf_nmt_interp.cli.output import Row, in_chunks, open_output, write_rows
from hf_nmt_interp.cli.sharded_run import Refusals, try_rows
from hf_nmt_interp.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_translating(parser, batch_size=32, formats=("text", *arguments.OUTPUT_FORMATS))
    group = parser.add_argument_group("mark-up")
    group.add_argument("--markup", action="store_true", help="carry inline tags and placeholders over")
    group.add_argument("--strict", action="store_true", help="with --markup: stop at the first line that is refused")
    group.add_argument("--align", metavar="METHOD", help="method used to align words (default: the same as `align`)")


def run(args: argparse.Namespace) -> None:
    kind = arguments.chosen_format(args)
    streams = args.output is None and kind in ("text", "json", "tsv")
    rows = _rows(args, arguments.read_sentences(args), streams)
    if kind != "text":
        write_rows(rows, args, title="Translations")
        return
    with open_output(args.output) as file:
        for row in rows:
            file.write(row["translation"] + "\n")
            file.flush()


def _rows(args: argparse.Namespace, sentences: list[str], streams: bool) -> Iterator[Row]:
    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.decoding.pairs import Pairs, encode_sources

    model, tokenizer = load_for(args)
    if args.markup:
        yield from _marked_up(args, sentences, model, tokenizer, streams)
        return
    encoded = list(zip(sentences, encode_sources(model, tokenizer, sentences), strict=True))
    for chunk in in_chunks(encoded, 4 * args.batch_size, "Translating", streams):
        full = [source for sentence, source in chunk if sentence.strip()]
        pairs = iter(Pairs.translate(model, tokenizer, full, args.batch_size, arguments.generate_options(args)))
        for sentence, _ in chunk:
            target = next(pairs).ids.target_ids if sentence.strip() else []
            yield {"source": sentence, "translation": tokenizer.decode(target, skip_special_tokens=True)}


def _marked_up(
    args: argparse.Namespace, sentences: list[str], model: Any, tokenizer: Any, streams: bool
) -> Iterator[Row]:
    from hf_nmt_interp.analysis.markup import transfer_markup

    options = {"method": args.align, "batch_size": args.batch_size, "generate": arguments.generate_options(args)}
    transfer_markup([], model, tokenizer, **options)  # wrong settings are refused before the work
    report = Refusals(args, "wrote it untranslated", "", None)
    numbered = list(enumerate(sentences, 1))
    for chunk in in_chunks(numbered, 4 * args.batch_size, "Translating", streams):
        texts = [sentence for _, sentence in chunk]
        found = try_rows(lambda some: transfer_markup(some, model, tokenizer, **options), texts)
        for (number, sentence), translation in zip(chunk, found, strict=True):
            if isinstance(translation, InputError):
                if translation.argument not in ("source", "sources"):  # not about this line
                    raise translation
                report.row(number, translation)
                translation = sentence
            yield {"source": sentence, "translation": translation}
