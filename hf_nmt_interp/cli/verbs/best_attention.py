"""Find the cross-attention layer and head of a translator that align words best, by pairs with gold links.

One pass over the pairs ranks all layers and heads (-, in JSON null: the mean over the heads of a layer), plain and
shifted by one step. --save writes a copy of the model with the first row in its config: the method `attention` then
uses that layer and head, and so does `align` if no --method is given and the model has no alignment head.
--ctranslate2 prints the best row without shift in the format of CTranslate2's config.json,
`{"alignment_heads": [[layer, head]]}`, with all heads of the layer for a mean.

Examples:
  hf-nmt-interp best-attention --gold gold.txt train.en train.de
  hf-nmt-interp best-attention --gold gold.txt train.en train.de --top 3 --save best
  hf-nmt-interp best-attention --gold gold.txt train.en train.de --ctranslate2
  hf-nmt-interp best-attention --gold gold1.txt train.en train.de --gold-base 1 --format json
"""

import argparse
import json

from hf_nmt_interp.cli.arguments import add_gold, add_model, add_output, positive, read_gold_pairs
from hf_nmt_interp.cli.output import open_output, write_rows
from hf_nmt_interp.cli.paths import OutputFolder, check_new_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_gold(parser)
    parser.add_argument("--top", type=positive, default=10, metavar="N", help="heads to show (default: %(default)s)")
    parser.add_argument("--save", type=OutputFolder, metavar="FOLDER", help="new folder for the model with that head")
    parser.add_argument("--ctranslate2", action="store_true", help="print alignment_heads instead of the table")
    parser.add_argument("--batch-size", type=positive, default=16, metavar="N", help="default: %(default)s")
    add_model(parser)
    add_output(parser, ("table", "json", "tsv"))


def run(args: argparse.Namespace) -> None:
    if args.save is not None:
        check_new_folder("--save", args.save)

    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.models.loading import save_whole
    from hf_nmt_interp.studies.best_attention import attention_error_rates

    pairs, gold = read_gold_pairs(args)
    sources, targets = ([text.split() for text in side] for side in zip(*pairs, strict=True))
    model, tokenizer = load_for(args)
    rates = attention_error_rates(model, tokenizer, sources, targets, gold, args.batch_size)
    if args.save is not None:
        rates[0].store(model)
        save_whole(args.save, model, tokenizer)
    if args.ctranslate2:
        best = next(choice for choice in rates if not choice.shifted)
        with open_output(args.output) as file:
            file.write(json.dumps(best.ctranslate2(model)) + "\n")
        return
    rows = [choice._asdict() | {"aer": round(choice.aer, 6)} for choice in rates[: args.top]]
    write_rows(rows, args, title="Attention that aligns best")
