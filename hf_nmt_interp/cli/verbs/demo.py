"""Translate a few sentences with a bundled translator and explain every word, offline.

For each sentence it shows the translation with numbered word links. Below, for each word: how much of the decision
came from the source, the most relevant source word and, where the source has less than 70 %, the most relevant earlier
word of the translation, all by layer-wise relevance propagation. All numbers are on a web page, demo.html or --output;
the default replaces the page of an earlier demo, but no other file.

Examples:
  hf-nmt-interp demo
  hf-nmt-interp demo --language de-en
  hf-nmt-interp demo --output mine.html "My sister plays the piano."
"""

import argparse
from pathlib import Path

from hf_nmt_interp.cli.output import open_output
from hf_nmt_interp.cli.paths import OutputFile
from hf_nmt_interp.text.tokens import check_text

SENTENCES = {
    "en-de": (
        "The cat is sleeping on the sofa.",
        "Yesterday we bought fresh bread at the market.",
        "I do not know where my keys are.",
        "She has already read the letter.",
        "Can you help me tomorrow?",
    ),
    "de-en": (
        "Die Katze schläft auf dem Sofa.",
        "Gestern haben wir frisches Brot gekauft.",
        "Ich weiß nicht, wo meine Schlüssel sind.",
        "Sie hat den Brief schon gelesen.",
        "Kannst du mir morgen helfen?",
    ),
}
TITLE = "hf_nmt_interp demo"


class DefaultPage(OutputFile):
    """The page if none is named: replaces the page of an earlier demo, but no other file."""

    def problem(self) -> str | None:
        """Why it cannot be written."""
        page = Path(self)
        if not page.is_file() or f"<title>{TITLE}</title>".encode() in page.read_bytes():
            return super().problem()
        return f"{self} exists and is not a page of the demo; name another file, e.g. --output {page.stem}-2.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sentences", nargs="*", metavar="SENTENCE", help="your own sentences (default: five built-in ones)"
    )
    model = parser.add_mutually_exclusive_group()
    help = "direction of the bundled translator: %(choices)s (default: en-de)"
    model.add_argument("--language", choices=list(SENTENCES), metavar="DIRECTION", help=help)
    model.add_argument("--model", metavar="NAME", help="another translator: a folder or a Hub id")
    help = "page to write; replaced if it exists (default: %(default)s, replaced only if a demo wrote it)"
    parser.add_argument("--output", type=_page, default=DefaultPage("demo.html"), metavar="FILE", help=help)
    parser.set_defaults(formats=("html",))


def _page(path: str) -> OutputFile:
    return path if isinstance(path, DefaultPage) else OutputFile(path)


def run(args: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.text import Text

    from hf_nmt_interp.cli.loading import load
    from hf_nmt_interp.report.terminal import legend, show

    name = f"demo:{args.language or 'en-de'}" if args.model is None else args.model
    sentences = args.sentences or list(SENTENCES.get(name.removeprefix("demo:"), SENTENCES["en-de"]))
    for number, sentence in enumerate(sentences, 1):
        check_text(f"sentence {number}", sentence)
    model, tokenizer = load(name)
    from hf_nmt_interp.analysis.alignment import add_links
    from hf_nmt_interp.analysis.head_maps import head_maps
    from hf_nmt_interp.attribution.api import attribute
    from hf_nmt_interp.report.html import render

    results = add_links(model, attribute(model, tokenizer, sentences, method="lrp", generate={"num_beams": 4}))
    with open_output(None) as file:
        console = Console(file=file)
        for result in results:
            show(result.to_words(), console)
        console.print(legend(results[0]))
    with open_output(args.output) as file:
        file.write(render(results, title=TITLE, heads=[head_maps(model, result) for result in results]))
    page = Path(args.output).resolve().as_uri()
    console.print(Text.assemble("\nWrote ", (args.output, "bold"), ": open it in a browser to see every number."))
    console.print(page, soft_wrap=True, highlight=False, markup=False)  # not wrapped, so it can be clicked
    console.print('Next: hf-nmt-interp demo "your sentence", app (type in a page), attribute --help', markup=False)
