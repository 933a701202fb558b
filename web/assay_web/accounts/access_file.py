"""The file `access.sqlite` of a workspace: accounts, identities, invitations, sessions, API tokens,
memberships in projects, attempts to sign in, and the audit log.

Tokens are stored as SHA-256 digests and passwords as argon2 hashes: the file's content is not enough to sign in.
"""

import os
import sqlite3
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from assay.system.hash_chain import AUDIT_FIELDS, AUDIT_FILE, link
from assay.system.sqlite_file import SQLiteFile

FILE = AUDIT_FILE


class AccessFile(SQLiteFile):
    """The open file, readable by its owner only (mode 0600)."""

    schema = Path(__file__).with_name("access_file.sql").read_text(encoding="utf-8")
    #: 4 members, the project of an invitation, the chain of the audit log; 5 tokens; 6 groups of people; 7 identities
    version = 7
    remedy = "move it away and start again: accounts have to be created again; votes and data are not in it"

    def __init__(self, path: Path, *, wait: float = 30.0) -> None:
        with suppress(FileExistsError):  # never opened here: closing it would end SQLite's locks of this process
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        super().__init__(path, wait=wait)

    def _upgrade(self, db: sqlite3.Connection, version: int) -> None:
        if version < 4:
            db.execute("INSERT OR IGNORE INTO members SELECT 'default', name FROM accounts")
            self._add_column(db, "invitations", "project", "TEXT NOT NULL DEFAULT 'default'")
            self._add_column(db, "audit", "hash", "TEXT NOT NULL DEFAULT ''")
            head = ""
            for row in db.execute(f"SELECT {', '.join(AUDIT_FIELDS)} FROM audit ORDER BY id").fetchall():
                head = link(head, list(row))
                db.execute("UPDATE audit SET hash = ? WHERE id = ?", (head, row["id"]))


def digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()
