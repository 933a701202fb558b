"""A log whose every line holds the hash of the line before: a changed, removed or inserted line breaks the chain.

Covers: the hash of a line, and the check of the audit log of a workspace, for `assay doctor`. What it cannot show: that
somebody who can write to the file has computed the whole chain anew. Whoever needs that notes the last hash elsewhere.
Leaves out: writing the log (`assay_web.accounts.audit_log`).
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from assay.errors import BackendError

#: File and table of the audit log in a workspace, and what its lines hold, in the order in which it is hashed.
AUDIT_FILE, AUDIT_TABLE = "access.sqlite", "audit"
AUDIT_FIELDS = ("id", "at", "person", "action", "subject", "detail", "address")


@dataclass(frozen=True)
class ChainState:
    """`lines` up to the end or the break; `head`: the last good hash, "" of an empty log. `broken`: the first line that
    does not follow from those before it, and `reason`; None where every line does."""

    lines: int
    head: str
    broken: int | None = None
    reason: str = ""


def link(previous: str, values: Sequence[object]) -> str:
    """SHA-256, in hexadecimal, of the previous line's hash and this line's values. Values: JSON."""
    return sha256(json.dumps([previous, *values], ensure_ascii=False).encode()).hexdigest()


def check_audit_log(root: Path) -> ChainState | None:
    """The state of a workspace's audit log; None where there is none. Raises BackendError for a damaged file."""
    path = root / AUDIT_FILE
    if not path.is_file():
        return None
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30)
        try:
            columns = {row[1] for row in db.execute(f"PRAGMA table_info({AUDIT_TABLE})")}
            if not {*AUDIT_FIELDS, "hash"} <= columns:
                return ChainState(0, "", 1, "its hashes are missing" if columns else "the whole log is missing")
            return _walk(db)
        finally:
            db.close()
    except sqlite3.DatabaseError as error:
        raise BackendError(f"{path}: {error}") from error


def _walk(db: sqlite3.Connection) -> ChainState:
    db.execute("BEGIN")  # the lines and their count, of one state of the file
    head, lines, last = "", 0, 0
    for *values, stored in db.execute(f"SELECT {', '.join(AUDIT_FIELDS)}, hash FROM {AUDIT_TABLE} ORDER BY id"):
        if values[0] != last + 1:
            missing = f"line {last + 1} is missing" if values[0] == last + 2 else f"lines from {last + 1} are missing"
            return ChainState(lines, head, values[0], missing)
        if stored != link(head, values):
            return ChainState(lines, head, values[0], "it was changed, or the line before it")
        head, lines, last = stored, lines + 1, values[0]
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (AUDIT_TABLE,)).fetchone()
    if row is not None and row[0] > last:
        return ChainState(lines, head, last + 1, f"it and everything up to line {row[0]} are missing at the end")
    return ChainState(lines, head)
