"""One run at a time in a folder, and a clean exit on SIGTERM."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hf_nmt_interp.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


class Terminated(KeyboardInterrupt):
    """SIGTERM, sent by `kill` and batch systems."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise an exception on SIGTERM, as on Ctrl-C, so incomplete files are removed; a second one kills the process."""

    def stop(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # Python handles signals only in the main thread
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def locked(folder: str | Path, argument: str, name: str = LOCK) -> Iterator[None]:
    """Context that creates a folder and locks it; a second run gets an error that names the argument.

    The operating system releases the lock when a process ends, so the lock file of a killed run is harmless. File
    systems without locks are reported. A folder that is empty at the end is removed, unless it was empty before.
    """
    place = Path(folder)
    if place.exists() and not place.is_dir():  # the caller reports it
        yield
        return
    was_empty = place.exists() and not any(place.iterdir())
    place.mkdir(parents=True, exist_ok=True)
    with _take(place / name, argument, place) as file:
        try:
            yield
        finally:
            if os.name == "posix":  # on Windows an open file cannot be removed
                Path(file.name).unlink(missing_ok=True)
            if not was_empty and not any(place.iterdir()):
                place.rmdir()


def _take(path: Path, argument: str, place: Path) -> IO[bytes]:
    """The lock file, locked."""
    while True:
        file = path.open("ab")
        try:
            if fcntl is None:
                raise OSError
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            remedy = "wait until it ends, or choose another folder"
            raise InputError(argument, str(place), "is in use by another run", remedy) from None
        except OSError:
            print(
                f"{place}: file locks are not supported here; do not start a second run in this folder",
                file=sys.stderr,
            )
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        file.close()  # the previous run has just ended and removed it
