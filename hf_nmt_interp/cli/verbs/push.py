"""Send a model to the Hugging Face Hub: weights, configuration, tokenizer, code and card in one commit.

Only these are sent; whatever else is in the folder, and links, are named and left out. The folder is one that a
trainer or save_pretrained wrote. A new repository is private unless --public is given. The code of gated, pruned,
calibrated, LSTM and convolutional models goes along, so that others load them without this package by
`AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=True)`. Token: `hf auth login` or HF_TOKEN.

Examples:
  hf-nmt-interp push runs/l0/gated me/my-translator --dry-run
"""

import argparse

from hf_nmt_interp.errors import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("saved", metavar="FOLDER", help="a saved model with its tokenizer and card")
    parser.add_argument("repo", metavar="REPO", help="its name on the Hub, e.g. me/my-translator")
    parser.add_argument("--public", action="store_true", help="a new repository is for everybody (default: private)")
    parser.add_argument("--message", default="Model, tokenizer, code and card", help="of the commit")
    parser.add_argument("--dry-run", action="store_true", help="list what would go, and stop")


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.hub import push_folder

    pushed = push_folder(args.saved, args.repo, private=not args.public, message=args.message, dry_run=args.dry_run)
    for name, size in pushed.files.items():
        print(f"{size:>12,}  {name}")
    if pushed.left_out:
        print(f"left out, as they are no part of a model: {printable(', '.join(pushed.left_out))}")
    kind = "public" if args.public else "private"
    if pushed.url is None:
        print(f"{len(pushed.files)} files would go to {pushed.repo}, {kind} if it is new; nothing was sent")
    else:
        print(f"{len(pushed.files)} files in one commit: {pushed.url}")
