"""Text files that are there as a whole or not at all."""

from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Write a file, and its folder, so that a kill leaves what was there before or all of the new text."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(path)
