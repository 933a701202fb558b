"""Making the store's file anew from its redo log, or the log anew from the file.

Covers: locking out other processes, building beside the old file and taking its place at once, keeping the old file.
Leaves out: votes that are still in the journal (`assay.backups.rebuild`), applying units (`assay.store.replay`).
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BackendError, BusyError
from assay.store.database import Database
from assay.store.instances import attach, connected, detached, lent_instance
from assay.store.log_writer import last_number, write_base
from assay.store.replay import LogReplay, ReplayReport
from assay.store.schema import migrate, state_of
from assay.system.atomic_files import sync_folder

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class StoreRebuild:
    """`replay`: what was applied, and what of the log could not be. `old_file`: where the file lies that was there."""

    replay: ReplayReport
    old_file: Path | None


def rebuild_store(database: Database, *, advance: Callable[[int], object] = lambda n: None) -> StoreRebuild:
    """Make the file from its log alone. A kill at any point leaves the old file as it was. `advance`: units applied.

    Raises BackendError where there is no log or the disk fails, BusyError where another process holds the file,
    BadInputError for the log of a newer Assay.
    """
    if not database.log.files():
        raise BackendError(
            f"{database.path.parent} has no log to make the store from: restore a backup with `assay restore`"
        )
    new = database.path.with_name(f".{database.path.name}.rebuild")
    with _locked_out(database.path):
        for path in (new, Path(f"{new}.wal")):
            path.unlink(missing_ok=True)
        with _opened(database, new) as connection:
            replay = LogReplay(connection, database.log, advance=advance).run(None)
            migrate(connection)
        with new.open("rb") as stream:
            os.fsync(stream.fileno())
        old_file = _set_aside(database.path)
        new.rename(database.path)
        sync_folder(database.path.parent)
    return StoreRebuild(replay, old_file)


def rewrite_log(database: Database) -> None:
    """Make the log from a sound file: a base with every row; what was in the log before is removed after it.

    Raises as `Database.unit` does.
    """
    with _opened(database, database.path) as connection:
        log = database.log
        log.cut_torn()
        state = state_of(connection)
        migrate(connection)
        write_base(connection, log, max(last_number(log), state.position.number if state.position else 0) + 1)


@contextmanager
def _opened(database: Database, path: Path) -> "Iterator[duckdb.DuckDBPyConnection]":
    """A connection to a store's file without its log; the file is complete at the end of the block."""
    import duckdb

    spill = path.with_name(path.name + ".spill")
    try:
        with lent_instance(memory_limit=database.memory_limit, threads=database.threads, spill=spill) as instance:
            attach(instance, path)
            connection = connected(instance)
            try:
                yield connection
            finally:
                connection.close()
            if not detached(instance):
                raise BackendError(f"{path} could not be written completely: is the disk full?")
    except duckdb.Error as error:
        raise BackendError(f"{path}: {str(error).strip().splitlines()[0]}") from error


@contextmanager
def _locked_out(path: Path) -> Iterator[None]:
    """Hold the file as DuckDB does, sound or not, so that no other process opens it meanwhile."""
    if not path.exists():
        yield
        return
    handle = os.open(path, os.O_RDWR)
    try:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BusyError(f"{path} is held by another process; end it first") from error
        yield
    finally:
        os.close(handle)


def _set_aside(path: Path) -> Path | None:
    if not path.exists():
        return None
    kept = path.with_name(f"{path.name}.before-rebuild-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    path.rename(kept)
    wal = Path(f"{path}.wal")
    if wal.exists():
        wal.rename(f"{kept}.wal")
    return kept
