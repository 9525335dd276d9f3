"""Files and folders that appear under their name when they are complete, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex


@contextmanager
def atomic(path: str | Path, shared: bool = False) -> Iterator[Path]:
    """A path to write a file or a folder to, which is renamed to `path` if nothing is raised inside.

    Its folder is created, a link is followed, an existing file or folder is replaced; a device is written to. A kill
    leaves what was there before (of a folder perhaps nothing). An error names `path`. If it is `shared`, several
    processes may write it at the same time.
    """
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    # process ids of two machines may be the same
    name = f".{place.name}.{token_hex(4)}.part" if shared else f"{place.name}.part"
    part = place if is_device(place) else place.with_name(name)
    try:
        yield part
        if part.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        elif part != place:
            with part.open("rb") as file:
                os.fsync(file.fileno())
        if part != place:
            part.replace(place)
    except OSError as error:
        if error.filename in (None, str(part)):
            error.filename = str(path)
        raise
    finally:
        if part != place:
            shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)


def is_device(place: Path) -> bool:
    """Whether the path exists and is neither a file nor a folder, e.g. /dev/null."""
    return place.exists() and not place.is_file() and not place.is_dir()


def write_whole(path: str | Path, text: str, shared: bool = False) -> None:
    """Write a text file, and its folder, complete or not at all; for `shared` see `atomic`."""
    with atomic(path, shared) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
