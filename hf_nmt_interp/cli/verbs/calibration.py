"""Show what calibration does to the cross-attention of translators, layer by layer (lu2021).

jsd        Jensen-Shannon divergence of original and fused weights, mean over heads and steps (nats)
entropy    entropy of the original weights
change     entropy_change: entropy of the fused weights minus entropy; above 0, they are more dispersed
tau att.   kendall_attention: rank correlation of attention with gradient importance |d p / d encoder state|
tau mask   kendall_mask: the same for the masks m; below 0, important words are masked
mask       mask_mean, closer to 1 with a larger alpha

json and tsv use the long names, and also have half the 95 % interval of each number over bootstrap samples of the
sentences (jsd_ci, ...). A plain translator has only entropy and tau att. --figures FOLDER draws the figures of the
paper, and also JSD by entropy and, with --compare, masks by alpha, and BLEU if the models' folders have the
results.json of their training. The numbers of each figure are in a CSV file next to it.

Examples:
  hf-nmt-interp calibration --model runs/gate "The cat is sleeping on the sofa." "Where is the station?"
  hf-nmt-interp calibration --model runs/gate --compare runs/gate2 --input test.en --limit 200 --figures figures
"""

import argparse
import json
from pathlib import Path

from hf_nmt_interp.cli import arguments
from hf_nmt_interp.cli.output import write_rows
from hf_nmt_interp.cli.paths import InputFile, OutputFolder

SHORT = {"entropy_change": "change", "kendall_attention": "tau att.", "kendall_mask": "tau mask", "mask_mean": "mask"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_sentences(parser)
    parser.add_argument(
        "--target-file",
        type=InputFile,
        metavar="FILE",
        help="file with one translation per line (default: the model translates)",
    )
    arguments.add_model(parser)
    help = "another model to compare; may be repeated"
    parser.add_argument("--compare", action="append", default=[], metavar="[LABEL=]NAME", help=help)
    parser.add_argument("--batch-size", type=arguments.positive, default=16, metavar="N", help="default: %(default)s")
    arguments.add_output(parser)
    parser.add_argument(
        "--figures", type=OutputFolder, metavar="FOLDER", help="folder for the figures (SVG) and their numbers (CSV)"
    )


def _bleu(name: str) -> dict[str, float]:
    """BLEU of the test, if a training wrote it into the model's folder."""
    path = Path(name) / "results.json"
    bleu = json.loads(path.read_text(encoding="utf-8")).get("test_bleu") if path.is_file() else None
    return {} if bleu is None else {"bleu": bleu}


def run(args: argparse.Namespace) -> None:
    sources = arguments.read_sentences(args)
    targets = arguments.read_file(args.target_file)[: args.limit] if args.target_file else None

    from hf_nmt_interp.analysis.calibration import calibration_report
    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.report.calibration import calibration_rows, plot_calibration

    reports = []
    for label, name in arguments.labelled([args.model, *args.compare], "--compare").items():
        model, tokenizer = load_for(args, name)
        options = {"batch_size": args.batch_size}
        reports.append(calibration_report(model, tokenizer, sources, targets, **options))
        reports[-1].about |= {"model": label} | _bleu(name)
    rows = calibration_rows(reports)
    if arguments.chosen_format(args) == "table":  # 80 columns
        rows = [{SHORT.get(name, name): x for name, x in row.items() if not name.endswith("_ci")} for row in rows]
    rounded = [{name: round(x, 4) if isinstance(x, float) else x for name, x in row.items()} for row in rows]
    write_rows(rounded, args, "Calibration")
    if args.figures:
        plot_calibration(reports, args.figures)
