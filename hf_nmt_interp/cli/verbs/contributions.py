"""Source share, entropies and position influence by target position, over many sentences.

Each position has the mean over the sentences that are long enough, with a 95 % confidence interval. The papers use
sentences of one length: select them with --source-tokens and --target-tokens.

source_contribution  share of the source in what source and prefix contributed to the step
source_part          the same, with what the start token contributed in the total
source_entropy       how spread the source contributions are (nats)
prefix_entropy       how spread the prefix contributions are (nats)
position_influence   influence of the source position on the whole translation, 1 on average

With --prefix, --lengths, --compare (e.g. mle=runs/mle mrt=runs/mrt), --checkpoints or --figure it runs a study on
sentence pairs of one source and one target length, or of several (default: the most frequent lengths). A study needs
references and adds:
accuracy             share of the reference's tokens that are the model's first choice
kl_to_final          distance of the tokens' influences from those of the model named by --final
The number of pairs with these lengths is printed on stderr; n is the number of sentences of a row. json and tsv have
all columns; the table omits those that are the same in all rows.

With --shards it writes the statistics of each sentence of a corpus; `merge` computes their means.

Examples:
  hf-nmt-interp contributions "I like tea." "She has a red car." "We are at home."
  hf-nmt-interp contributions --statistic source_contribution --format tsv "I like tea." "We are at home."
  hf-nmt-interp contributions --input train.en --target-file train.de --prefix reference --figure box.svg
"""

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hf_nmt_interp.cli import arguments
from hf_nmt_interp.cli.loading import load
from hf_nmt_interp.cli.output import Row, rounded, write_rows
from hf_nmt_interp.cli.sharded_run import add_corpus, refuse, run_corpus
from hf_nmt_interp.cli.shards import ShardFolder
from hf_nmt_interp.cli.verbs.attribute import Explain, add_method, add_targets, explained
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.studies.prefixes import PREFIXES
from hf_nmt_interp.text.corpus import Texts

if TYPE_CHECKING:
    from hf_nmt_interp.analysis.contributions import Curve

_STUDY = ("prefix", "lengths", "compare", "checkpoints", "figure")  # arguments that start a study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_targets(parser)
    add_method(parser)
    parser.add_argument("--statistic", metavar="NAME", help="one of those above (default: all)")
    for flag, what in (("--source-tokens", "sources"), ("--target-tokens", "translations")):
        parser.add_argument(flag, type=arguments.positive, metavar="N", help=f"only {what} of N tokens, with EOS")
    study = parser.add_argument_group("study")
    study.add_argument(
        "--prefix", nargs="+", choices=PREFIXES, help="prefix that the decoder reads (default: reference)"
    )
    help = "source and target tokens, with EOS, of each set of sentence pairs, e.g. 20,23 16,19"
    study.add_argument("--lengths", nargs="+", type=_lengths, metavar="S,T", help=help)
    help = "also use pairs whose sides are up to N tokens shorter or longer (default: 0)"
    study.add_argument("--within", type=int, metavar="N", help=help)
    study.add_argument("--compare", nargs="+", metavar="[LABEL=]NAME", help="models to compare, instead of --model")
    study.add_argument("--checkpoints", metavar="RUN", help="all checkpoints of a training run, compared to its last")
    study.add_argument("--final", metavar="LABEL", help="the model that the others' influences are compared with")
    study.add_argument(
        "--pairs", type=arguments.positive, metavar="N", help="use at most N pairs of each length (default: 200)"
    )
    arguments.add_figure(study, "the curves")
    arguments.add_translating(parser)
    add_corpus(parser)


def _lengths(text: str) -> tuple[int, int]:
    source, comma, target = text.partition(",")
    if not comma:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not two numbers, e.g. 20,23")
    return arguments.positive(source), arguments.positive(target)


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.analysis.contributions import STATISTICS, contribution_curves
    from hf_nmt_interp.attribution.registry import default_settings, parse_method_settings

    settings = parse_method_settings(args.method, args.set)
    method = args.method, default_settings(args.method) | settings
    if args.shards:
        refuse(args, "target", "output", "format", *Contribute.merge_options, *_STUDY, "final", "pairs")
        _check_statistic(args, STATISTICS)
        run_corpus(args, (args.input, args.target_file), lambda: Contribute(args, method, args.model))
        return
    if any(getattr(args, name) for name in _STUDY):
        run_study(args, method[1])
        return
    for name in ("final", "pairs", "within"):
        if getattr(args, name) is not None:
            raise InputError(f"--{name}", None, "needs --prefix, --lengths, --compare, --checkpoints or --figure")
    _check_statistic(args, STATISTICS)
    results = [result for _, _, result in explained(args, [method], {"": args.model})]
    for side in Contribute.merge_options:
        if (number := getattr(args, side)) is not None:
            lengths = sorted({len(getattr(r, side)) for r in results})
            results = [r for r in results if len(getattr(r, side)) == number]
            if not results:
                known = ", ".join(map(str, lengths))
                raise InputError(args.flags[side], None, f"no sentence has {number}", f"there are {known}")
    curves = contribution_curves(results)
    write_rows(curve_rows({n: c for n, c in curves.items() if args.statistic in (None, n)}), args, "Contributions")


def curve_rows(curves: "dict[str, Curve]") -> list[Row]:
    """A row for each statistic and position."""
    rows = [{"statistic": name} | row for name, curve in curves.items() for row in curve.rows()]
    return [row | {end: rounded(row[end]) for end in ("mean", "low", "high")} for row in rows]


def _check_statistic(args: argparse.Namespace, known: Iterable[str]) -> None:
    if args.statistic is not None:
        check_choice("--statistic", args.statistic, known)


def run_study(args: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Study, write and draw."""
    if args.checkpoints and args.compare:
        raise InputError("--checkpoints", None, "give either a run or --compare")
    sources, targets = arguments.read_sentences(args), arguments.read_targets(args) or []
    if len(targets) != len(sources):
        problem = f"references for {len(sources)} sentences; a study needs one each"
        raise InputError("--target-file", len(targets), problem)
    names = model_names(args)
    if args.checkpoints and args.final is None:
        args.final = list(names)[-1]
    from hf_nmt_interp.studies.contribution_study import STUDIED, contribution_study

    _check_statistic(args, STUDIED)
    languages = args.source_lang, args.target_lang, args.source_prefix
    models, tokenizer = study_models(names, args.device, *languages, args.dtype)
    if args.lengths and (args.source_tokens or args.target_tokens):
        raise InputError("--lengths", None, "gives both sides", "leave --source-tokens and --target-tokens out")
    lengths = args.lengths or [(args.source_tokens, args.target_tokens)]
    pairs: Any = {"lengths": lengths, "within": args.within or 0, "limit": args.pairs or 200}
    compared = {"prefixes": args.prefix or ["reference"], "final": args.final, "method": args.method}
    options: Any = {"batch_size": args.batch_size, "generate": arguments.generate_options(args)}
    study = contribution_study(models, tokenizer, sources, targets, **pairs, **compared, **options, **settings)
    if args.figure:
        from hf_nmt_interp.report.contributions import plot_contributions, plot_training

        plot_contributions(study, args.figure, [args.statistic] if args.statistic else None)
        if args.checkpoints:
            path = Path(args.figure)
            plot_training(study, path.with_name(f"{path.stem}-training{path.suffix}"))
    rows = [row for row in study.rows if args.statistic in (None, row["statistic"])]
    write_rows(short_rows(rows) if arguments.chosen_format(args) == "table" else rows, args, "Contributions")
    _report_used(study.rows, len(sources), **pairs)


def short_rows(rows: list[Row]) -> list[Row]:
    """Rows for a table of 80 columns: without prefix, tokens and statistic where they are the same in all rows."""
    short = [
        {"model": row["model"], "prefix": row["prefix"], "tokens": f"{row['source_tokens']},{row['target_tokens']}"}
        | {"statistic": row["statistic"], "pos": row["position"], "mean": row["mean"]}
        | {"low": row["low"], "high": row["high"], "n": row["sentences"]}
        for row in rows
    ]
    same = {name for name in ("prefix", "tokens", "statistic") if len({row[name] for row in short}) == 1}
    return [{name: row[name] for name in row if name not in same} for row in short]


def _report_used(rows: list[Row], given: int, lengths: Any, within: int, limit: int) -> None:
    """Print the number of pairs of each set to stderr, and why others were left out."""
    used: dict[tuple[int, int], int] = {}
    for row in rows:
        tokens = row["source_tokens"], row["target_tokens"]
        used[tokens] = max(used.get(tokens, 0), row["sentences"])
    about = f" (--within {within})" if within else ""
    for (source, target), number in used.items():
        if number < given:
            those = f"the first {number:,} (--pairs)" if number == limit else "those"
            text = f"used {number:,} of {given:,} pairs: {those} of {source} source and {target} target tokens{about}"
            more = "have other lengths or are beyond --pairs" if number == limit else "have other lengths"
            print(f"{text}; the other {given - number:,} {more} (--lengths and --within select more)", file=sys.stderr)


def model_names(args: argparse.Namespace) -> dict[str, str]:
    """Labels and names of the models to study."""
    if args.checkpoints:
        from hf_nmt_interp.training.checkpoints import list_checkpoints

        found = {path.name: str(path) for path in list_checkpoints(args.checkpoints)}
        if not found:
            raise InputError("--checkpoints", None, f"{args.checkpoints} has no complete checkpoint-* folder")
        return found
    return arguments.labelled(args.compare or [args.model], "--compare")


def study_models(names: dict[str, str], *options: Any) -> tuple[dict[str, Any], Any]:
    """Functions that load the models, and the tokenizer that they must all have; `options` as for `load`."""
    _, tokenizer = load(next(iter(names.values())), *options)

    def load_model(name: str) -> Any:
        model, own = load(name, *options)
        if own.get_vocab() != tokenizer.get_vocab():
            remedy = "compare models of one tokenizer (a new one gets it by train_translation.py --tokenizer)"
            raise InputError("--compare", None, f"{name} has another vocabulary than the first model", remedy)
        return model

    return {label: partial(load_model, name) for label, name in names.items()}, tokenizer


class Contribute(Explain):
    """Statistics of explanations as rows."""

    merged = "means over all sentences, or those of these lengths"
    merged_formats = arguments.OUTPUT_FORMATS
    merge_options: ClassVar[dict[str, str]] = {
        "source_tokens": "sources of N tokens only",
        "target_tokens": "translations of N tokens only",
    }

    @classmethod
    def merge(cls, folder: ShardFolder, args: argparse.Namespace) -> None:
        import numpy as np

        from hf_nmt_interp.analysis.contributions import STATISTICS, RunningCurve

        curves: dict[str, RunningCurve] = {}
        for row in folder.rows():
            if row.get("source_tokens") and all(getattr(args, n) in (None, row[n]) for n in cls.merge_options):
                for name in STATISTICS:
                    if name in row:  # None becomes NaN
                        curves.setdefault(name, RunningCurve()).add(np.array(row[name], dtype=float))
        if not curves:
            raise InputError(args.finished, None, "no sentence is left: none has these lengths, or all were refused")
        write_rows(curve_rows({name: curve.curve() for name, curve in curves.items()}), args, "Contributions")

    def rows(self, lines: list[Texts]) -> list[Row]:
        from hf_nmt_interp.analysis.contributions import STATISTICS
        from hf_nmt_interp.report.records import plain

        chosen = {name: f for name, f in STATISTICS.items() if self.args.statistic in (None, name)}
        return [
            {side: len(getattr(result, side)) for side in self.merge_options}
            | {name: plain(statistic(result)) for name, statistic in chosen.items()}
            for result in self.results(lines)
        ]

    @property
    def columns(self) -> dict[str, Any]:
        from hf_nmt_interp.analysis.contributions import STATISTICS

        chosen = [name for name in STATISTICS if self.args.statistic in (None, name)]
        return {"source_tokens": int, "target_tokens": int} | dict.fromkeys(chosen, list[float])


JOB = Contribute
