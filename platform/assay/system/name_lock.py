"""A lock on the name of the model that a run trains, so that two runs cannot produce the same name.

Covers: one run per name and workspace, by a lock that the kernel releases however the process ends. Leaves out: names
that exist already (the trainings), one run in several processes (its first one locks for all).
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.errors import BackendError, BadInputError


@contextmanager
def locked_name(target: Path, *, hint: str = "choose another --name") -> Iterator[Callable[[str], None]]:
    """Hold the name of the folder `target`, which need not be there. Yields a function that records who holds it.

    Raises BadInputError where another process holds it, BackendError when the disk fails.
    """
    path = target.with_name(f".{target.name}.claim")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _locked(path)
    except OSError as error:
        raise BackendError(f"cannot write {path}: {error.strerror or error}") from error
    if handle is None:
        holder = ""
        with suppress(OSError):  # it may just have ended, and the file with it
            holder = path.read_text(encoding="utf-8", errors="replace")
        raise BadInputError(f"{holder or 'another run'} is making it; {hint}", file=target)

    def record_holder(holder: str) -> None:
        os.ftruncate(handle, 0)
        os.pwrite(handle, holder.encode(), 0)

    try:
        record_holder(f"process {os.getpid()}")
        yield record_holder
    finally:
        path.unlink(missing_ok=True)
        fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked holds the file, too
        os.close(handle)


def _locked(path: Path) -> int | None:
    """The file, locked and still the one of that name; None where another process has it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # whoever held it has just removed it
