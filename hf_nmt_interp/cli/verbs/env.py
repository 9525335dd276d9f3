"""Print version information for bug reports, and which models each method supports.

Examples:
  hf-nmt-interp env
  hf-nmt-interp env --json
"""

import argparse
import json
import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from hf_nmt_interp.version import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(args: argparse.Namespace) -> None:
    found = environment()
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        width = max(map(len, found))
        for name, value in found.items():
            print(f"{name:{width}}  {', '.join(value) or 'none' if isinstance(value, list) else value}")


def environment() -> dict[str, Any]:
    """Versions of the package, its requirements and the platform; GPUs; bundled translators; models by method."""
    import torch

    from hf_nmt_interp.attribution.registry import methods_of_models, models_of_methods
    from hf_nmt_interp.models.demo import box

    needed = [line for line in requires("hf_nmt_interp") or () if "extra ==" not in line]
    names = sorted({re.split(r"[^\w-]", line)[0] for line in needed})
    return {
        "hf_nmt_interp": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "bundled translators": box(),
        **{name: _version(name) for name in names},
        **{f"models of {name}": models for name, models in models_of_methods().items()},
        **{f"methods with rules for {name}": methods for name, methods in methods_of_models().items()},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
