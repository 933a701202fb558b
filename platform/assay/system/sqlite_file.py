"""A SQLite file of a workspace that several processes change concurrently.

Covers: opening it in WAL mode, its schema and version, transactions, and what can go wrong with the file. Leaves out:
what is in it (annotation queues, accounts). DuckDB lets one process in at a time; SQLite lets many in, each for
milliseconds.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.errors import BackendError, BusyError
from assay.system.closable import Closable


class SQLiteFile(Closable):
    """One open file. Threads may share it: those that write take turns, and so do those that read, on a connection of
    their own, so that no reader waits for another thread's fsync. Other processes have their own."""

    #: Statements, each ending in ";\n", that make the tables; and their version, 1 or higher.
    schema: str
    version: int
    #: Whether its owner alone may read it (mode 0600).
    private: bool = False
    #: What to do when the file is damaged.
    remedy: str = "restore it from a copy"

    def __init__(self, path: Path, *, wait: float = 30.0) -> None:
        """`wait`: seconds to wait for another process's transaction before BusyError."""
        self.path = path
        self.wait = wait
        self._turn, self._readers_turn = threading.RLock(), threading.RLock()
        self._thread = threading.local()
        if self.private:
            with suppress(FileExistsError):  # never opened here: closing it would end SQLite's locks of this process
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with self._errors():
            self._db = self._connect()
            try:
                self._prepare()
                self._reader = self._connect()
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that other writers wait for; commits at the end of the block, rolls back on any exception.

        `durable=False` spares the fsync: after a power failure (not: a kill) the last such transactions may be missing.
        """
        with self._turn, self._errors():
            self._require_outside()
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            with self._transaction(self._db):
                yield self._db

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One state of the file, whatever others write meanwhile."""
        with self._readers_turn, self._errors():
            self._require_outside()
            self._reader.execute("BEGIN")
            with self._transaction(self._reader):
                yield self._reader

    def close(self) -> None:
        with self._turn, self._readers_turn:
            self._reader.close()
            self._db.close()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=self.wait, isolation_level=None, check_same_thread=False)
        db.row_factory = sqlite3.Row
        return db

    def _require_outside(self) -> None:
        assert not getattr(self._thread, "inside", False), "transactions do not nest"

    @contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        self._thread.inside = True
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        finally:
            self._thread.inside = False

    def _prepare(self) -> None:
        deadline = time.monotonic() + self.wait
        while True:  # changing to WAL does not wait for its turn as everything else does
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > self.version:
            raise BackendError(f"{self.path} has version {version}, this Assay knows {self.version}: upgrade Assay")
        if version < self.version:
            self._db.execute("BEGIN IMMEDIATE")
            with self._transaction(self._db):
                for statement in self.schema.split(";\n"):
                    self._db.execute(statement)
                if version:
                    self._upgrade(self._db, version)
                self._db.execute(f"PRAGMA user_version = {self.version}")

    def _upgrade(self, db: sqlite3.Connection, version: int) -> None:
        """Bring a file of an older version to this one, in the transaction that writes the new version. The schema's
        statements have run: they make new tables, and leave tables that are there as they are."""

    def _add_column(self, db: sqlite3.Connection, table: str, column: str, definition: str) -> None:
        """Nothing where the table has it."""
        if column not in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {definition}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise  # a rule of ours is broken: a bug, not a condition
        except sqlite3.OperationalError as error:
            text = str(error)
            if "locked" in text or "busy" in text:
                raise BusyError(f"{self.path} is held by another process; waited {self.wait:g} s") from error
            if any(phrase in text for phrase in ("full", "I/O", "unable to open", "readonly")):
                raise BackendError(f"{self.path}: {text}; the last step was not stored, do it again") from error
            raise
        except sqlite3.DatabaseError as error:
            raise BackendError(f"{self.path}: {error}; {self.remedy}") from error
