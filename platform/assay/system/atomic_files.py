"""Atomic writes: a file or folder is complete or absent, even if the process is killed.

Covers: writing a file or a folder beside the target and renaming once the bytes are on the disk; fsync of a folder's
entries. Leaves out: the store (DuckDB has its own log), the vote journal's append (`assay.annotation.vote_journal`).
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.errors import BackendError, BadInputError


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; at the end of the block it is fsynced and takes the target's name.

    On any exception the temporary file goes and the target stays as it was. Raises BackendError when the disk
    fails, BadInputError when the folder does not exist.
    """
    if not target.parent.is_dir():
        raise BadInputError("no such folder", file=target.parent)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise BackendError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(target: Path, *, ours: str) -> Iterator[Path]:
    """Yield a new, empty folder beside `target`; at the end of the block it is fsynced and takes the target's name.

    A folder that is there is replaced if it is empty or holds a file named `ours`, which says that it was made this
    way. On any exception the new folder goes and the target stays as it was. Raises BadInputError for any other folder
    or file in the way, BackendError when the disk fails.
    """
    if not target.parent.is_dir():
        raise BadInputError("no such folder", file=target.parent)
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not (target / ours).is_file())):
        raise BadInputError("is in the way and was not made by this command: name a new folder", file=target)
    mark = secrets.token_hex(4)
    temporary, old = target.with_name(f".{target.name}.{mark}.part"), target.with_name(f".{target.name}.{mark}.old")
    try:
        temporary.mkdir()
        yield temporary
        for path in sorted(temporary.rglob("*"), reverse=True):
            if path.is_dir():
                sync_folder(path)
            else:
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
        sync_folder(temporary)
        if target.exists():
            target.rename(old)
        temporary.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise BackendError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if not target.exists() and old.exists():
            old.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make creations and renames in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
