"""Upload a model to the Hugging Face Hub: weights, configuration, tokenizer, code and card in one commit.

FOLDER was written by a trainer or save_pretrained. Only these files are uploaded; other files and symbolic links are
listed and skipped. A new repository is private unless --public is given. The code of gated, pruned, calibrated, LSTM
and convolutional models is included, so they can be loaded without this package with
`AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=True)`. Token: `hf auth login` or HF_TOKEN.

--space creates a Space for a model on the Hub or a bundled one instead: it writes a folder with app.py,
requirements.txt and README.md that serves the page of `hf-nmt-interp app`, and uploads it. With --dry-run it only
writes the folder.

Examples:
  hf-nmt-interp push runs/l0/gated me/my-translator --dry-run
  hf-nmt-interp push demo:en-de --space me/my-space --output runs/my-space --dry-run
"""

import argparse

from hf_nmt_interp.cli.paths import OutputFolder
from hf_nmt_interp.errors import InputError, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "saved",
        metavar="FOLDER",
        help="folder of a saved model with its tokenizer and card; with --space, the name of a model",
    )
    parser.add_argument("repo", nargs="?", metavar="REPO", help="its name on the Hub, e.g. me/my-translator")
    parser.add_argument(
        "--space", metavar="NAME", help="create a Space with this name for the model, e.g. me/my-space"
    )
    help = "with --space: folder to write (default: the last part of its name)"
    parser.add_argument("--output", type=OutputFolder, metavar="FOLDER", help=help)
    parser.add_argument("--public", action="store_true", help="make a new repository public (default: private)")
    parser.add_argument("--message", default="Model, tokenizer, code and card", help="commit message")
    parser.add_argument("--dry-run", action="store_true", help="list what would be uploaded, and exit")


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
        print(f"skipped, not part of a model: {printable(', '.join(pushed.left_out))}")
    kind = "public" if args.public else "private"
    if pushed.url is None:
        print(f"{len(pushed.files)} files would be uploaded to {pushed.repo}, {kind} if new; nothing was uploaded")
    else:
        print(f"{len(pushed.files)} files in one commit: {pushed.url}")


def _push_space(args: argparse.Namespace) -> None:
    from hf_nmt_interp.spaces import push_space

    if args.repo is not None:
        raise InputError("REPO", args.repo, "is given as well as --space", "leave it out")
    folder = args.output or args.space.rpartition("/")[2]
    pushed = push_space(args.saved, args.space, folder, private=not args.public, dry_run=args.dry_run)
    print(f"wrote {', '.join(pushed.files)} to {printable(str(folder))}")
    print(f"uploaded to {pushed.url}" if pushed.url else "nothing was uploaded")
