"""The tables of the operational file `annotation.sqlite`, which annotators and processes change concurrently.

DuckDB lets one process in at a time; SQLite in WAL mode lets people vote through a long import. It holds the only copy
of nothing that counts: `annotation.recovery` rebuilds it from the store's queues and the journal's votes.
"""

import sqlite3
from pathlib import Path

from assay.system.sqlite_file import SQLiteFile

FILE = "annotation.sqlite"
VERSION = 5  #: 2 added vote_principles, 3 the project of a queue, 4 vote_labels, 5 changes of a queue
COMPLETE = 0x41535359  # "ASSY", in the file's header


#: Columns that version 5 added.
_SEEN = {"guideline": "INTEGER", "suggestion": "TEXT"}
_ADDED = {
    "queues": {
        "title": "TEXT",
        "options": "TEXT NOT NULL DEFAULT '{}'",
        "asked": "TEXT",
        "paused": "INTEGER NOT NULL DEFAULT 0",
        "deleted": "INTEGER NOT NULL DEFAULT 0",
    },
    "items": {"removed": "INTEGER NOT NULL DEFAULT 0"},
    "leases": _SEEN,
    "votes": _SEEN,
}


class Ledger(SQLiteFile):
    """The open file of annotation."""

    schema = Path(__file__).with_name("ledger.sql").read_text(encoding="utf-8")
    version = VERSION
    remedy = "move it away and run `assay queue recover`: queues and votes are in the store and the journal"

    def _upgrade(self, db: sqlite3.Connection, version: int) -> None:
        if version < 3:
            self._add_column(db, "queues", "project", "TEXT NOT NULL DEFAULT 'default'")
        for table, columns in _ADDED.items():
            for column, definition in columns.items():
                self._add_column(db, table, column, definition)

    @property
    def complete(self) -> bool:
        """Whether the file has been filled from the store since it was made."""
        with self.reading() as db:
            return bool(db.execute("PRAGMA application_id").fetchone()[0] == COMPLETE)

    def mark_complete(self) -> None:
        with self.writing() as db:
            db.execute(f"PRAGMA application_id = {COMPLETE}")
