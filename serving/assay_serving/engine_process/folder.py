"""The folder of one running server, for its user alone: the engine's socket and the fronts' counters are in it.

Covers: making it, taking it away at the end, and taking away those of servers that were killed: a server holds a lock
on its folder, which the system lets go of however the process ends. Leaves out: what is put in it (`supervisor`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "assay-serve-"
SOCKET, METRICS = "engine", "metrics"  #: all that there is in one
_LONGEST_SOCKET_PATH = 100
_SHORT = "/tmp"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter, short enough for the path of a Unix socket in it."""
    remove_left_over()
    folder, lock = _made()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left_over() -> None:
    """Remove folders of this user's servers that run no more."""
    for parent in dict.fromkeys((tempfile.gettempdir(), _SHORT)):
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(parent)
        for name in names:
            if name.startswith(PREFIX):
                with suppress(OSError):  # it belongs to somebody else, it is in use, or it has just gone
                    _remove(os.path.join(parent, name))


def _remove(folder: str) -> None:
    lock = _opened(folder)
    try:
        found = os.fstat(lock)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if set(os.listdir(lock)) <= {SOCKET, METRICS}:
            shutil.rmtree(folder)
    finally:
        os.close(lock)


def _made() -> tuple[Path, int]:
    """The folder, and the descriptor that keeps it locked; no child inherits it."""
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        if len(folder) > _LONGEST_SOCKET_PATH - len(f"/{SOCKET}"):
            os.rmdir(folder)
            folder = tempfile.mkdtemp(prefix=PREFIX, dir=_SHORT)
        try:
            lock = _opened(folder)
        except FileNotFoundError:
            continue  # another server that started took it for left over, before it was locked
        if _locked(lock) and os.path.isdir(folder):
            return Path(folder), lock
        os.close(lock)


def _locked(folder: int) -> bool:
    """False where another process holds it; a file system without locks has folders that nobody removes."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _opened(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
