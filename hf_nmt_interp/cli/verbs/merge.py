"""Join the shards that a verb wrote with --shards.

All shards must be complete. Lines that were skipped have empty rows; the folder `bad` lists them with the reasons.

Examples:
  hf-nmt-interp merge runs/links --output train.links
  hf-nmt-interp merge runs/attention --output attention.jsonl
  hf-nmt-interp merge runs/shares --source-tokens 12 --target-tokens 12
"""

import argparse
import sys

from hf_nmt_interp.cli.arguments import add_output, chosen_format, positive
from hf_nmt_interp.cli.sharded_run import Job
from hf_nmt_interp.cli.shards import ShardFolder
from hf_nmt_interp.cli.verbs import VERBS, load_verb
from hf_nmt_interp.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Folder, options of the verbs, and output; the description lists the result for each verb."""
    parser.add_argument("finished", metavar="FOLDER", help="the folder given as --shards")
    formats: dict[str, None] = {}
    parser.description = f"{parser.description}\n"
    for verb, job in jobs().items():
        parser.description += f"\n{verb:15}{job.merged}: {', '.join(job.merged_formats)}"
        formats |= dict.fromkeys(job.merged_formats)
        for name, help in job.merge_options.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=positive, metavar="N", help=f"{verb}: {help}")
    add_output(parser, tuple(formats))
    parser.set_defaults(formats=())  # options of the verb that wrote the shards


def run(args: argparse.Namespace) -> None:
    folder, known = ShardFolder(args.finished), jobs()
    if (verb := str(folder.about.get("verb"))) not in known:
        raise InputError(args.finished, None, f"its run.json names the verb {verb!r}, not one of {', '.join(known)}")
    folder.complete()  # before anything is written
    job = known[verb]
    if args.format and args.format not in job.merged_formats:
        raise InputError(
            "--format", args.format, f"is not supported for {verb}", f"choose one of {', '.join(job.merged_formats)}"
        )
    args.formats = job.merged_formats
    chosen_format(args)  # reports unknown extensions early
    for other, found in known.items():
        for name in found.merge_options:
            if found is not job and getattr(args, name) is not None:
                raise InputError(
                    args.flags[name], None, f"is supported only for {other}", f"these shards were written by {verb}"
                )
    if refused := folder.refused():
        print(f"{refused:,} lines were skipped, see {folder.folder / 'bad'}", file=sys.stderr)
    job.merge(folder, args)


def jobs() -> dict[str, type[Job]]:
    """The verbs that write shards."""
    modules = {name: load_verb(name) for name in VERBS}
    return {name: module.JOB for name, module in modules.items() if hasattr(module, "JOB")}
