"""Writes files and folders that get their name only when they are complete."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

_NOT_WRITTEN = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EISDIR,
    errno.EEXIST, errno.ENOTDIR,
)  # fmt: skip
# safetensors and torch report a full or read-only disk only in the message
_IN_WORDS = "No space left on device", "Disk quota exceeded", "File too large", "PytorchStreamWriter failed writing"


def write_problem(error: Exception) -> str | None:
    """A write error as one line; None for other errors.

    >>> write_problem(OSError(errno.ENOSPC, "No space left on device", "links.txt"))
    'links.txt: No space left on device'
    >>> write_problem(RuntimeError("I/O error: No space left on device (os error 28)"))
    'cannot write: I/O error: No space left on device (os error 28)'
    """
    if isinstance(error, OSError) and error.errno in _NOT_WRITTEN:
        return f"{error.filename or 'cannot write'}: {error.strerror}"
    return f"cannot write: {error}" if any(words in str(error) for words in _IN_WORDS) else None


@contextmanager
def atomic(path: str | Path, shared: bool = False) -> Iterator[Path]:
    """Context with a temporary path for a file or folder, which is renamed to `path` if nothing is raised inside.

    The parent folder is created, links are followed, an existing file or folder is replaced, and devices are written
    to directly. A killed process leaves the previous file (or perhaps no folder). Errors name `path`. With `shared`,
    several processes may write it at the same time.
    """
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    # two machines may have the same process ids
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
        named = [str(name) for name in (error.filename, error.filename2) if name]
        if not named or any(name.startswith(str(part)) for name in named):  # errors of a copy name two files
            error.filename, error.filename2 = str(path), None
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
