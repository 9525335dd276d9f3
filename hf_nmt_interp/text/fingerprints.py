"""Fingerprints of the inputs of a run and the versions it uses, to check that a resumed run is the same."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hf_nmt_interp.version import __version__

_LIBRARIES = "torch", "transformers"  # packages whose versions can change results


def file_fingerprint(path: str | Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_fingerprint(paths: Iterable[str | Path]) -> str:
    """SHA-256 of files and their names, whatever folder they are in."""
    found = sorted((Path(path).name, file_fingerprint(path)) for path in paths)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def data_fingerprint(path: str) -> str:
    """SHA-256 of a file or of all files in a folder; otherwise the name itself, e.g. of a dataset on the Hub."""
    if os.path.isdir(path):
        return files_fingerprint(file for file in Path(path).rglob("*") if file.is_file())
    return file_fingerprint(path) if os.path.isfile(path) else path


def versions() -> dict[str, str]:
    """Versions of this package and of the libraries that affect its results."""
    return {"hf_nmt_interp": __version__} | {name: version(name) for name in _LIBRARIES}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Values that differ, as (old, new).

    >>> changes({"seed": 1, "model": "a"}, {"seed": 2, "model": "a"})
    {'seed': (1, 2)}
    """
    return {n: (before.get(n), now.get(n)) for n in {**before, **now} if before.get(n) != now.get(n)}
