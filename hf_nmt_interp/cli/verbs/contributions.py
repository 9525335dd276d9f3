"""Source share, entropies and position influence by target position, over many sentences.

For each position the mean over the sentences that reach it, with a 95 % confidence interval. The papers take
sentences of one length: --source-tokens and --target-tokens keep those.

source_contribution  share of the source in what was contributed to the step
source_entropy       how spread the source contributions are (nats)
prefix_entropy       how spread the prefix contributions are (nats)
position_influence   influence of the source position on the whole translation, 1 on average

With --prefix, --compare (e.g. mle=runs/mle mrt=runs/mrt), --checkpoints or --figure it is a study on sentence pairs of
one source and one target length (the most frequent ones if not given). It needs references and also gives:
accuracy             share of the reference's tokens that are the model's first choice
kl_to_final          distance of the tokens' influences from those of the model named by --final
json and tsv also have the lengths and the number of sentences.

With --shards the statistics of each sentence of a corpus are written; merge gives their means.

Examples:
  hf-nmt-interp contributions "I like tea." "She has a red car." "We are at home."
  hf-nmt-interp contributions --statistic source_contribution --format tsv "I like tea." "We are at home."
  hf-nmt-interp contributions --input train.en --target-file train.de --prefix reference --figure box.svg
"""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hf_nmt_interp.cli.arguments import (
    OUTPUT_FORMATS,
    add_figure,
    add_translating,
    check_choice,
    chosen_format,
    generate_options,
    labelled,
    positive,
    read_sentences,
    read_targets,
)
from hf_nmt_interp.cli.output import Row, rounded, track_items, write_rows
from hf_nmt_interp.cli.sharded_run import add_corpus, refuse, run_corpus
from hf_nmt_interp.cli.shards import ShardFolder
from hf_nmt_interp.cli.verbs.attribute import Explain, add_method, add_targets, explained
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.prefixes import PREFIXES
from hf_nmt_interp.text.corpus import Texts

if TYPE_CHECKING:
    from hf_nmt_interp.analysis.contributions import Curve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sentences, targets, method, lengths, study, model, decoding and output."""
    add_targets(parser)
    add_method(parser)
    parser.add_argument("--statistic", metavar="NAME", help="one of those above (default: all)")
    parser.add_argument("--source-tokens", type=positive, metavar="N", help="only sources of N tokens, with EOS")
    parser.add_argument("--target-tokens", type=positive, metavar="N", help="only translations of N tokens, with EOS")
    study = parser.add_argument_group("study")
    study.add_argument("--prefix", nargs="+", choices=PREFIXES, help="what the decoder reads (default: reference)")
    study.add_argument("--compare", nargs="+", metavar="[LABEL=]NAME", help="models, instead of --model")
    study.add_argument("--checkpoints", metavar="RUN", help="all checkpoints of a training run, compared to its last")
    study.add_argument("--final", metavar="LABEL", help="the model that the others' influences are compared with")
    study.add_argument("--pairs", type=positive, metavar="N", help="at most N (default: 200)")
    add_figure(study, "the curves")
    add_translating(parser)
    add_corpus(parser)


def run(args: argparse.Namespace) -> None:
    """Explain, average and write."""
    from hf_nmt_interp.analysis.contributions import STATISTICS, contribution_curves
    from hf_nmt_interp.attribution.registry import parse_method_settings

    if args.shards:
        refuse(args, "target", "output", "format", *Contribute.merge_options)
        refuse(args, "prefix", "compare", "checkpoints", "figure", "final", "pairs")
        check_choice("--statistic", args.statistic, STATISTICS)
        method = args.method, parse_method_settings(args.method, args.set)
        run_corpus(args, (args.input, args.target_file), lambda: Contribute(args, method, args.model))
        return
    if args.prefix or args.compare or args.checkpoints or args.figure:
        if args.checkpoints and args.compare:
            raise InputError("--checkpoints", None, "give either a run or --compare")
        run_study(args)
        return
    for name in ("final", "pairs"):
        if getattr(args, name) is not None:
            remedy = "give --prefix, --compare, --checkpoints or --figure too"
            raise InputError(f"--{name}", None, "of a study only", remedy)
    check_choice("--statistic", args.statistic, STATISTICS)
    settings = parse_method_settings(args.method, args.set)
    results = [result for _, _, result in explained(args, [(args.method, settings)], {"": args.model})]
    for side in Contribute.merge_options:
        if (number := getattr(args, side)) is not None:
            lengths = sorted({len(getattr(r, side)) for r in results})
            results = [r for r in results if len(getattr(r, side)) == number]
            if not results:
                remedy = f"there are {', '.join(map(str, lengths))}"
                raise InputError(args.flags[side], None, f"no sentence has {number}", remedy)
    curves = contribution_curves(results)
    write_rows(curve_rows({n: c for n, c in curves.items() if args.statistic in (None, n)}), args, "Contributions")


def curve_rows(curves: "dict[str, Curve]") -> list[Row]:
    """A row for each statistic and position."""
    return [
        {"statistic": name, "position": position, "mean": mean, "low": low, "high": high, "sentences": count}
        for name, curve in curves.items()
        for position, (mean, low, high, count) in enumerate(
            zip(*(map(rounded, a) for a in (curve.mean, curve.low, curve.high)), curve.count.tolist(), strict=True)
        )
        if count
    ]


def run_study(args: argparse.Namespace) -> None:
    """Study, write and draw."""
    sources = read_sentences(args)
    targets = read_targets(args)
    if targets is None or len(targets) != len(sources):
        problem = f"references for {len(sources)} sentences"
        raise InputError("--target-file", len(targets or []), problem, "a study needs one each")
    from hf_nmt_interp.attribution.registry import parse_method_settings

    settings = parse_method_settings(args.method, args.set)
    names = model_names(args)
    if args.checkpoints and args.final is None:
        args.final = list(names)[-1]
    from hf_nmt_interp.studies.contribution_study import STUDIED, contribution_study

    check_choice("--statistic", args.statistic, STUDIED)
    study = contribution_study(
        *study_models(names, args.device, args.source_lang, args.target_lang),
        sources,
        targets,
        prefixes=args.prefix or ["reference"],
        lengths=[(args.source_tokens, args.target_tokens)],
        limit=args.pairs or 200,
        final=args.final,
        method=args.method,
        batch_size=args.batch_size,
        generate=generate_options(args),
        track=track_items,
        **settings,
    )
    if args.figure:
        from hf_nmt_interp.report.contributions import plot_contributions, plot_training

        plot_contributions(study, args.figure, [args.statistic] if args.statistic else None)
        if args.checkpoints:
            path = Path(args.figure)
            plot_training(study, path.with_name(f"{path.stem}-training{path.suffix}"))
    rows = [row for row in study.rows if args.statistic in (None, row["statistic"])]
    if chosen_format(args) == "table":  # 80 columns; these are the same in all rows
        same = ("source_tokens", "target_tokens", "sentences")
        rows = [{name: value for name, value in row.items() if name not in same} for row in rows]
    write_rows(rows, args, "Contributions")


def model_names(args: argparse.Namespace) -> dict[str, str]:
    """Labels and names of the models to study."""
    if args.checkpoints:
        from hf_nmt_interp.training.checkpoints import list_checkpoints

        found = {path.name: str(path) for path in list_checkpoints(args.checkpoints)}
        if not found:
            raise InputError("--checkpoints", None, f"{args.checkpoints} has no complete checkpoint-* folder")
        return found
    return labelled(args.compare or [args.model], "--compare")


def study_models(names: dict[str, str], *options: Any) -> tuple[dict[str, Any], Any]:
    """Functions that load the models, and the tokenizer that they must all have; `options` as for `load`."""
    from hf_nmt_interp.cli.loading import load

    _, tokenizer = load(next(iter(names.values())), *options)
    return {label: partial(_model, tokenizer, name, *options) for label, name in names.items()}, tokenizer


def _model(tokenizer: Any, name: str, *options: Any) -> Any:
    from hf_nmt_interp.cli.loading import load

    model, own = load(name, *options)
    if own.get_vocab() != tokenizer.get_vocab():
        problem = f"{name} has another vocabulary than the first model"
        remedy = "compare models of one tokenizer (a new one gets it by train_translation.py --tokenizer)"
        raise InputError("--compare", None, problem, remedy)
    return model


class Contribute(Explain):
    """Statistics of explanations as rows."""

    merged = "means over all sentences, or those of these lengths"
    merged_formats = OUTPUT_FORMATS
    merge_options: ClassVar[dict[str, str]] = {
        "source_tokens": "sources of N tokens only",
        "target_tokens": "translations of N tokens only",
    }

    @classmethod
    def merge(cls, folder: ShardFolder, args: argparse.Namespace) -> None:
        """Write the means."""
        import numpy as np

        from hf_nmt_interp.analysis.contributions import STATISTICS, RunningCurve

        curves: dict[str, RunningCurve] = {}
        for row in folder.rows():
            if row.get("source_tokens") and all(
                getattr(args, side) in (None, row[side]) for side in cls.merge_options
            ):
                for name in STATISTICS:
                    if name in row:  # None becomes NaN
                        curves.setdefault(name, RunningCurve()).add(np.array(row[name], dtype=float))
        if not curves:
            remedy = "it has none of these lengths, or all were refused"
            raise InputError(args.finished, None, "no sentence is left", remedy)
        write_rows(curve_rows({name: curve.curve() for name, curve in curves.items()}), args, "Contributions")

    def rows(self, lines: list[Texts]) -> list[Row]:
        """Numbers of tokens, and each statistic by position."""
        from hf_nmt_interp.analysis.contributions import STATISTICS
        from hf_nmt_interp.report.records import plain

        rows = []
        for result in self.results(lines):
            sizes = {side: len(getattr(result, side)) for side in ("source_tokens", "target_tokens")}
            chosen = {name: f for name, f in STATISTICS.items() if self.args.statistic in (None, name)}
            rows.append(sizes | {name: plain(statistic(result)) for name, statistic in chosen.items()})
        return rows

    @property
    def columns(self) -> dict[str, Any]:
        """Types of the columns."""
        from hf_nmt_interp.analysis.contributions import STATISTICS

        chosen = [name for name in STATISTICS if self.args.statistic in (None, name)]
        return {"source_tokens": int, "target_tokens": int} | dict.fromkeys(chosen, list[float])


JOB = Contribute
