"""Opening the workspace's DuckDB file for one unit of work.

Covers: waiting for the one writing process (with a message that names it), transactions that commit whole or
not at all and are in the redo log before they do, memory and spill limits, what a damaged file is told by. Leaves out:
what is written (`assay.store.records`, the parts above), the log (`assay.store.redo_log`), the DuckDB instance that a
unit attaches the file to (`assay.store.instances`). DuckDB lets no second process open the file, not even to read,
while one holds it: keep units short, and never hold one across model work.
"""

import logging
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from assay.errors import BackendError, BadInputError, BusyError
from assay.store.change_capture import CapturingConnection
from assay.store.connection import Connection as Connection
from assay.store.instances import attach, connected, lent_instance
from assay.store.log_writer import LogWriter, synchronise
from assay.store.redo_log import RedoLog

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

_HOLDER = re.compile(r"held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")
#: One lock per file, not per object: DuckDB would let two connections of one process write, and conflict.
_LOCKS: dict[str, threading.RLock] = {}
SILENCE_S = 2.0  #: a longer wait is said, with the holder's name
#: What DuckDB says of the disk in other words; the last of a log, in a folder that takes no file.
_DISK = ("No space left", "Could not write file", "Cannot open file")
#: What DuckDB says of a file with a flipped bit or a missing part.
_DAMAGE = re.compile(
    r"corrupt|checksum|deserializ|serialization|not a valid DuckDB|invalidated because of a previous fatal|"
    r"could not read enough bytes|INTERNAL Error",
    re.IGNORECASE,
)
REBUILD = "nothing that was acknowledged is lost: `assay rebuild` makes the store anew from its log"


@dataclass(frozen=True)
class Database:
    """One DuckDB file. Creating the object opens nothing; `unit()` does.

    `wait`: seconds to wait for another process before BusyError. `memory_limit`: DuckDB's own, beside which
    training must fit; work past it spills to `spill` (default: a folder beside the file).
    """

    path: Path
    wait: float = 30.0
    memory_limit: str = "2GB"
    threads: int | None = None
    spill: Path | None = None

    @contextmanager
    def unit(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """One unit of work: a transaction that commits at the end of the block and rolls back on any exception.

        Raises BusyError when another process holds the file for longer than `wait`, BackendError when the disk
        or DuckDB fails. Threads of one process take turns; do not nest units.
        """
        import duckdb

        requested_at = time.monotonic()
        with _LOCKS.setdefault(str(self.path.resolve()), threading.RLock()):
            if not self.path.exists() and self.log.files():
                raise BackendError(f"{self.path} is gone; {REBUILD}")
            with self._instance() as instance:
                connection = self._connect(instance, requested_at)
                try:
                    writer = synchronise(connection, self.log)
                    connection.execute("BEGIN")
                    capture = CapturingConnection(connection)
                    yield cast("duckdb.DuckDBPyConnection", capture)
                    _commit(connection, capture, writer)
                except duckdb.Error as error:
                    if is_damage(error):
                        raise BackendError(f"{self.path} is damaged: {_first_line(error)}; {REBUILD}") from error
                    if _is_storage_failure(error):
                        raise BackendError(
                            f"{self.path}: {_first_line(error)}; the last step was not stored, run it again"
                        ) from error
                    raise
                finally:
                    connection.close()  # an open transaction rolls back

    @property
    def log(self) -> RedoLog:
        """The redo log, in a folder beside the file."""
        return RedoLog(self.path.with_name("log"))

    def _instance(self) -> "AbstractContextManager[duckdb.DuckDBPyConnection]":
        spill = self.spill or self.path.with_name(self.path.name + ".spill")
        return lent_instance(memory_limit=self.memory_limit, threads=self.threads, spill=spill)

    def _connect(self, instance: "duckdb.DuckDBPyConnection", requested_at: float) -> "duckdb.DuckDBPyConnection":
        """A connection of its own to the file, attached to `instance`: what it makes for itself ends with it.

        `asked`: when the unit was asked for. Threads that waited for their turn while another one waited for the same
        process do not begin to wait again, or the last of many would wait many times as long.
        """
        import duckdb

        pause, warned = 0.02, False
        while True:
            try:
                attach(instance, self.path)
                break
            except duckdb.ResourceInUseException as error:  # a unit within a unit, or a connection of the caller's own
                raise BusyError(f"{self.path} is open elsewhere in this process", retry_after=1.0) from error
            except duckdb.IOException as error:
                text = str(error)
                if not is_held(text):
                    if is_damage(error) and self.log.files():
                        raise BackendError(f"{self.path} is damaged: {_first_line(error)}; {REBUILD}") from error
                    raise BackendError(f"cannot open {self.path}: {_first_line(error)}") from error
                waited = time.monotonic() - requested_at
                if waited >= self.wait:
                    raise BusyError(
                        f"{self.path} is held by {holder_of(text)}; waited {self.wait:g} s",
                        retry_after=max(self.wait, 1.0),
                    ) from error
                if waited >= SILENCE_S and not warned:
                    warned = True
                    log.warning("waiting up to %g s for %s, held by %s", self.wait, self.path, holder_of(text))
                time.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 1.5, 0.5)
            except duckdb.Error as error:
                if self.log.files():
                    raise BackendError(f"{self.path} is damaged: {_first_line(error)}; {REBUILD}") from error
                raise BadInputError(f"not a DuckDB file: {_first_line(error)}", file=self.path) from error
        return connected(instance)


@contextmanager
def registered(db: "duckdb.DuckDBPyConnection", name: str, table: object) -> Iterator[None]:
    """The Arrow table `table` as a view `name` during the block.

    DuckDB refuses while an earlier result is open, which a single `fetchone` leaves it: such a result is closed here
    if it has no more rows. One that has is the caller's mistake, and the exception stands.
    """
    import duckdb

    try:
        db.register(name, table)
    except duckdb.ResourceInUseException:
        if db.fetchone() is not None:
            raise
        db.register(name, table)
    try:
        yield
    finally:
        db.unregister(name)


def _commit(connection: "duckdb.DuckDBPyConnection", capture: CapturingConnection, writer: LogWriter) -> None:
    """The unit's changes into the log, then into the file. A unit that is in the log and not in the file, because the
    process was killed in between, is applied when the file is next opened."""
    import duckdb

    end = writer.append(connection, capture)
    try:
        connection.execute("COMMIT")
    except duckdb.Error:
        if end is not None:
            writer.take_back(end)
        raise


def is_held(message: str) -> bool:
    """Whether that is why DuckDB cannot open a file. A path may have the word "lock" in it, too."""
    return "Could not set lock on file" in message


def holder_of(message: str) -> str:
    """The process that holds a file, of what DuckDB says when it cannot open it."""
    match = _HOLDER.search(message)
    return f"{match['program']} (process {match['pid']})" if match else "another process"


def is_damage(error: BaseException) -> bool:
    """Whether the file is not as DuckDB wrote it."""
    return _DAMAGE.search(str(error)) is not None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def _is_storage_failure(error: BaseException) -> bool:
    import duckdb

    # FatalException: a checkpoint could not be written. A log that could not comes as a TransactionException, whose
    # other cause, two writers in conflict, cannot arise in units of work: only its text tells them apart.
    kinds = duckdb.IOException | duckdb.OutOfMemoryException | duckdb.FatalException
    return isinstance(error, kinds) or any(phrase in str(error) for phrase in _DISK)
