"""The audit log of a workspace: who changed what, when, from where.

Each line holds the hash of the line before, which `assay doctor` verifies (`assay.system.hash_chain`). An entry holds
no text written by users and no secret. Leaves out: which requests are logged
(`assay_web.access.audited_route`).
"""

import json
import time
from dataclasses import dataclass
from typing import Any

from assay.system.hash_chain import AUDIT_FIELDS, link
from assay_web.accounts.access_file import AccessFile


@dataclass(frozen=True)
class AuditLine:
    """`at`: seconds since the epoch. `detail`: JSON. `person`: "" for somebody who was not signed in. `hash`: of
    this line and of the hash before it."""

    id: int
    at: float
    person: str
    action: str
    subject: str
    detail: str
    address: str
    hash: str


def record(
    access: AccessFile, person: str, action: str, subject: str = "", *, detail: Any = None, address: str = ""
) -> None:
    """`action`: e.g. "cast_vote". `subject`: what it was done to, e.g. a queue. `detail`: JSON-serialisable."""
    payload = json.dumps({} if detail is None else detail, ensure_ascii=False, sort_keys=True)
    with access.writing(durable=False) as db:
        last = db.execute("SELECT hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
        added = db.execute(
            "INSERT INTO audit (at, person, action, subject, detail, address) VALUES (?, ?, ?, ?, ?, ?)",
            (time.time(), person, action, subject, payload, address),
        ).lastrowid
        row = db.execute(f"SELECT {', '.join(AUDIT_FIELDS)} FROM audit WHERE id = ?", (added,)).fetchone()
        db.execute("UPDATE audit SET hash = ? WHERE id = ?", (link(last["hash"] if last else "", list(row)), added))


def read_audit(
    access: AccessFile,
    *,
    person: str | None = None,
    action: str | None = None,
    subject: str | None = None,
    before: int | None = None,
    most: int = 100,
) -> list[AuditLine]:
    """Newest first. `before`: lines older than the one with this id. `subject`: a part of it."""
    conditions = [
        ("person = ?", person),
        ("action = ?", action),
        ("instr(lower(subject), lower(?)) > 0", subject or None),
        ("id < ?", before),
    ]
    bound = [(condition, value) for condition, value in conditions if value is not None]
    where = f"WHERE {' AND '.join(condition for condition, _ in bound)}" if bound else ""
    with access.reading() as db:
        rows = db.execute(
            f"SELECT * FROM audit {where} ORDER BY id DESC LIMIT ?", (*(value for _, value in bound), most)
        ).fetchall()
    return [AuditLine(**dict(row)) for row in rows]


def audit_names(access: AccessFile) -> tuple[list[str], list[str]]:
    """The persons and the actions that the log knows."""
    with access.reading() as db:
        persons = [row[0] for row in db.execute("SELECT DISTINCT person FROM audit ORDER BY person")]
        actions = [row[0] for row in db.execute("SELECT DISTINCT action FROM audit ORDER BY action")]
    return persons, actions
