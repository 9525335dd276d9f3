"""The verbs, one module each.

To add one: write the module and add its name to `VERBS`. The module has a docstring (summary, description, `Examples:`
that run), `add_arguments(parser)` and `run(args)`. Arguments that name files have a type of `cli.paths`. If it runs
over corpora, `JOB` is its subclass of `cli.sharded_run.Job`: rows, their schema and how shards are merged. Heavy
imports are inside functions, so `--help` stays fast.
"""

from importlib import import_module
from typing import Any

VERBS = (
    "demo", "app", "translate", "attribute", "align", "check", "check-table", "aer", "best-attention",
    "alignment-table", "contributions", "faithfulness", "compare-methods", "detached", "heads", "merge", "push",
    "calibration", "prune", "pruning-table", "train", "env",
)  # fmt: skip


def load_verb(name: str) -> Any:
    """The module of a verb."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")
