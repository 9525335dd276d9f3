"""Show what each attention head does: relevance, confidence, and positional, syntactic and rare-word roles.

relev.         relevance for the translation by LRP, as a share of its layer's
conf.          confidence: mean over tokens of the largest attention weight
position       most frequent relative position of that weight, and its share of the tokens; a role from 90 %
best relation  accuracy / accuracy of the best fixed position, for nsubj, obj, amod and advmod; a role if 10 % higher
rare           share of sentences in which it looks at one of the two rarest tokens; a role above 50 %

Give sentences as arguments or with --input; without them the text of --trees is used. Syntactic scores need trees of
the source language (--trees), gold or from any parser. The table has one line per head, sorted by relevance in each
layer, and with trees one per relation: its best head and the baseline. csv and json have all scores; --figure draws
them, coloured by role, and --relations-figure draws the relations. With --shards, facts about each sentence of a
corpus are written, and `merge` makes the report; rare words then need --corpus.

Examples:
  hf-nmt-interp heads "The cat is sleeping on the sofa." "Where is the station?"
  hf-nmt-interp heads --set rule=ratio --set norm=scale --set attention=values "The cat is sleeping on the sofa."
  hf-nmt-interp heads --trees en_pud-ud-test.conllu --corpus train.en train.de --figure heads.png --output heads.csv
  hf-nmt-interp heads --trees en_pud-ud-test.conllu --target-file de_pud-ud-test.conllu --relevance-sentences 200
"""

import argparse
from typing import Any

from hf_nmt_interp.cli import arguments
from hf_nmt_interp.cli.loading import load_for
from hf_nmt_interp.cli.output import open_output
from hf_nmt_interp.cli.paths import InputFile
from hf_nmt_interp.cli.sharded_run import Translator, add_corpus, refuse, run_corpus
from hf_nmt_interp.cli.shards import Row, ShardFolder
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.text.conllu import read_conllu
from hf_nmt_interp.text.corpus import Texts, read_pairs

HEAD_FORMATS = ("table", "json", "csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_sentences(parser)
    help = "their translations, one per line or in a .conllu file (default: the model translates)"
    parser.add_argument("--target-file", type=InputFile, metavar="FILE", help=help)
    parser.add_argument("--trees", type=InputFile, metavar="FILE", help="CoNLL-U trees of the source language")
    help = "compute relevance, the slow part, on N sentences only"
    parser.add_argument("--relevance-sentences", type=int, metavar="N", help=help)
    help = "a setting of LRP for the relevance, e.g. rule=ratio; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=help)
    help = "parallel files to count tokens in, ideally the training data (default: the sentences)"
    parser.add_argument("--corpus", nargs=2, type=InputFile, metavar=("SOURCE", "TARGET"), help=help)
    arguments.add_model(parser)
    parser.add_argument("--batch-size", type=arguments.positive, default=16, metavar="N", help="default: %(default)s")
    arguments.add_output(parser, HEAD_FORMATS)
    arguments.add_figure(parser, "the heads")
    arguments.add_figure(parser, "relations and their best heads", "--relations-figure")
    parser.add_argument("--kind", default="encoder", help="attention to draw: encoder (default), decoder or cross")
    add_corpus(parser)


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.analysis.heads import KINDS, head_report
    from hf_nmt_interp.attribution.registry import parse_method_settings

    check_choice("--kind", args.kind, KINDS)
    lrp = parse_method_settings("lrp", args.set)
    if args.shards:
        refuse(args, "trees", "output", "format", "figure", "relations_figure")
        if args.relevance_sentences:
            raise InputError("--relevance-sentences", None, "must be 0 (none) or left out (all) with --shards")
        run_corpus(args, (args.input, args.target_file), lambda: Heads(args, lrp))
        return
    trees = list(read_conllu(args.trees))[: args.limit] if args.trees else None
    if trees == []:
        raise InputError("--trees", None, f"{args.trees} has no sentences")
    sources = arguments.read_sentences(args) if args.sentences or args.input or not trees else None
    targets = None
    if args.target_file:
        is_tree = args.target_file.endswith(".conllu")
        texts = [t.text for t in read_conllu(args.target_file)] if is_tree else arguments.read_file(args.target_file)
        targets = texts[: args.limit]

    model, tokenizer = load_for(args)
    options = {"relevance_sentences": args.relevance_sentences, "batch_size": args.batch_size}
    corpus = read_pairs(*args.corpus) if args.corpus else None
    report = head_report(model, tokenizer, sources, targets, trees, corpus=corpus, lrp=lrp, **options)
    write_report(report, args)
    if args.figure:
        from hf_nmt_interp.report.heads import plot_heads

        plot_heads(report, args.figure, args.kind)
    if args.relations_figure:
        from hf_nmt_interp.report.relations import plot_relations

        plot_relations(report, args.relations_figure)


def write_report(report: Any, args: argparse.Namespace) -> None:
    """Write a head report as a table, JSON or CSV."""
    kind = arguments.chosen_format(args)
    with open_output(args.output) as file:
        if kind == "table":
            from rich.console import Console

            from hf_nmt_interp.report.heads import head_table
            from hf_nmt_interp.report.relations import syntax_table

            Console(file=file).print(head_table(report), *[syntax_table(report)] * bool(report.syntax()), sep="\n")
        else:
            file.write(report.to_json() + "\n" if kind == "json" else report.to_csv())


class Heads(Translator):
    """Facts about the heads as rows."""

    merged = "the report of all sentences"
    merged_formats = HEAD_FORMATS

    @classmethod
    def merge(cls, folder: ShardFolder, args: argparse.Namespace) -> None:
        from hf_nmt_interp.analysis.heads import report_of

        rows = (row for row in folder.rows() if row.get("heads"))
        write_report(report_of(rows, {"model": folder.about["model"]}), args)

    def __init__(self, args: argparse.Namespace, lrp: dict[str, Any]) -> None:
        from hf_nmt_interp.analysis.heads import token_counts

        super().__init__(args, args.model)
        self.lrp = lrp
        self.counts = token_counts(self.tokenizer, read_pairs(*args.corpus)) if args.corpus else None

    def rows(self, lines: list[Texts]) -> list[Row]:
        from hf_nmt_interp.analysis.heads import head_facts

        wanted = self.args.relevance_sentences != 0
        return head_facts(
            self.model, self.tokenizer, *self.checked(lines), self.counts, relevance=wanted, lrp=self.lrp
        )

    @property
    def columns(self) -> dict[str, Any]:
        from hf_nmt_interp.analysis.heads import fact_types

        return fact_types()


JOB = Heads
