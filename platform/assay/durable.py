"""Files that are either whole or not there, whatever kills the process.

Covers: writing beside the target and renaming once the bytes are on the disk; fsync of a folder's entries. Leaves
out: the store (DuckDB has its own log), the vote journal's append (`assay.journal`).
"""

from __future__ import annotations

import os
import secrets
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


def sync_folder(folder: Path) -> None:
    """Make creations and renames in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
