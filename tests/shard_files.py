"""What corpus runs read in the tests, and what they wrote."""

from pathlib import Path

from hf_nmt_interp.cli.shards import read_rows
from tests.tiny_tokenizers import ENGLISH, GERMAN

SOURCES, TARGETS = ENGLISH * 3, GERMAN * 3


def rows_of(folder: Path) -> list[dict]:
    """All rows of a run."""
    return [row for path in shards_of(folder) for row in read_rows(path)]


def shards_of(folder: Path) -> list[Path]:
    """Files of the shards, in order."""
    return sorted((folder / "shards").glob("[0-9]*"))


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
