"""The private folder of one running server: the engine's socket and the HTTP workers' counters.

Covers: creating it, removing it at the end, and removing those of killed servers: a server holds a lock on its folder,
which the system releases when the process ends. Leaves out: its content (`supervisor`).
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "assay-serve-"
SOCKET, METRICS = "engine", "metrics"  #: its only entries; sockets of replicas have a number more
_LONGEST_SOCKET_PATH = 100
_SHORT = "/tmp"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter, short enough for the path of a Unix socket in it."""
    remove_left_over()
    folder, lock = _created()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left_over() -> None:
    """Remove folders of this user's servers that no longer run."""
    for parent in dict.fromkeys((tempfile.gettempdir(), _SHORT)):
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(parent)
        for name in names:
            if name.startswith(PREFIX):
                with suppress(OSError):  # of another user, in use, or just removed
                    _remove(os.path.join(parent, name))


def _remove(folder: str) -> None:
    lock = _open_folder(folder)
    try:
        status = os.fstat(lock)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != 0o700:
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if all(name == METRICS or name.startswith(SOCKET) for name in os.listdir(lock)):
            shutil.rmtree(folder)
    finally:
        os.close(lock)


def _created() -> tuple[Path, int]:
    """The folder, and the descriptor that keeps it locked; no child inherits it."""
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        if len(folder) > _LONGEST_SOCKET_PATH - len(f"/{SOCKET} 64"):
            os.rmdir(folder)
            folder = tempfile.mkdtemp(prefix=PREFIX, dir=_SHORT)
        try:
            lock = _open_folder(folder)
        except FileNotFoundError:
            continue  # another starting server removed it before it was locked
        if _locked(lock) and os.path.isdir(folder):
            return Path(folder), lock
        os.close(lock)


def _locked(folder: int) -> bool:
    """False where another process holds it; without locks of the file system folders are never removed."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _open_folder(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
