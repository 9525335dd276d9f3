"""Send a model to the Hugging Face Hub: weights, configuration, tokenizer, code and card in one commit.

Only these are sent; whatever else is in the folder, and links, are named and left out. The folder is one that a
trainer or save_pretrained wrote. A new repository is private unless --public is given. The code of gated, pruned,
calibrated, LSTM and convolutional models goes along, so that others load them without this package by
`AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=True)`. Token: `hf auth login` or HF_TOKEN.

--space makes a Space around a model on the Hub (or in the box) instead: a folder with app.py, requirements.txt and
README.md that serves the page of `hf-nmt-interp app`, and sends it. --dry-run only writes the folder.

Examples:
  hf-nmt-interp push runs/l0/gated me/my-translator --dry-run
  hf-nmt-interp push demo:en-de --space me/my-space --output runs/my-space --dry-run
"""

import argparse

from hf_nmt_interp.cli.paths import OutputFolder
from hf_nmt_interp.errors import InputError, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "saved", metavar="FOLDER", help="a saved model with its tokenizer and card; with --space the name of a model"
    )
    parser.add_argument("repo", nargs="?", metavar="REPO", help="its name on the Hub, e.g. me/my-translator")
    parser.add_argument("--space", metavar="NAME", help="make a Space of this name around the model, e.g. me/my-space")
    help = "folder of the Space (default: the last part of its name)"
    parser.add_argument("--output", type=OutputFolder, metavar="FOLDER", help=help)
    parser.add_argument("--public", action="store_true", help="a new repository is for everybody (default: private)")
    parser.add_argument("--message", default="Model, tokenizer, code and card", help="of the commit")
    parser.add_argument("--dry-run", action="store_true", help="list what would go, and stop")


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.hub import push_folder

    if args.space:
        _push_space(args)
        return
    if args.repo is None or args.output:
        problem = "is missing" if args.repo is None else "--output is for --space only"
        raise InputError("REPO", None, problem, "give FOLDER REPO, or MODEL --space NAME")
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


def _push_space(args: argparse.Namespace) -> None:
    from hf_nmt_interp.spaces import push_space

    if args.repo is not None:
        raise InputError("REPO", args.repo, "is given as well as --space", "leave it out")
    folder = args.output or args.space.rpartition("/")[2]
    pushed = push_space(args.saved, args.space, folder, private=not args.public, dry_run=args.dry_run)
    print(f"wrote {', '.join(pushed.files)} to {printable(str(folder))}")
    print(f"sent to {pushed.url}" if pushed.url else "nothing was sent")
