"""Flags and comments of annotators on items, for those who run the queue, and what became of them.

A note is as durable as a vote (`outbox`). Leaves out: who may read whose (the callers).
"""

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from assay.annotation.queue_changes import QueueChange
from assay.domain import prompt_of
from assay.errors import BadInputError, NotFoundError
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.service import AnnotationService, queue_row

NoteKind: TypeAlias = Literal["flag", "comment"]
LONGEST_NOTE = 5_000
EXCERPT = 160  #: characters of a prompt by which an item is recognised


@dataclass(frozen=True, slots=True)
class ItemNote:
    """`item`: its number in the queue; None where the item is gone. `excerpt`: the beginning of its last prompt turn.
    Times are seconds since the epoch."""

    id: str
    item: int | None
    excerpt: str
    person: str
    kind: NoteKind
    text: str
    at: float
    resolved_by: str | None
    resolved_at: float | None
    reply: str


def add_note(service: AnnotationService, assignment: Assignment, kind: NoteKind, text: str, key: str) -> ItemNote:
    """Durable when it returns. `assignment`: an item that the person has before them or has answered. `key`: of the
    request: the same again is the same note. Raises BadInputError for a comment without text."""
    if len(text) > LONGEST_NOTE:
        raise BadInputError(f"a note has at most {LONGEST_NOTE} characters", field="text")
    if kind == "comment" and not text.strip():
        raise BadInputError("a comment without text", field="text")
    with service.outbox.transaction() as transaction:
        queue = queue_row(transaction.db, assignment.queue)["queue_id"]
        detail = {"item": assignment.comparison_id, "kind": kind, "text": text.strip()}
        note = QueueChange(queue, "note", detail, assignment.annotator, time.time(), key)
        new = transaction.change(note)
    if not new:
        service.outbox.deliver_all()
    return _stored_note(service.ledger, assignment.queue, note.id)


def resolve_note(
    service: AnnotationService, queue: str, note: str, person: str, *, resolved: bool, reply: str = ""
) -> ItemNote:
    """`reply`: what its writer is told. Not `resolved`: open again. Raises NotFoundError."""
    _stored_note(service.ledger, queue, note)
    with service.outbox.transaction() as transaction:
        row = queue_row(transaction.db, queue)
        detail = {"note": note, "resolved": resolved, "reply": reply.strip()}
        transaction.change(QueueChange(row["queue_id"], "note_resolved", detail, person, time.time()))
    return _stored_note(service.ledger, queue, note)


def queue_notes(ledger: Ledger, queue: str, *, person: str | None = None) -> list[ItemNote]:
    """Of everybody, or of one person; those that are open first, then the newest."""
    with ledger.reading() as db:
        rows = db.execute(
            f"""{_READ} WHERE n.queue_id = ? AND (? IS NULL OR n.person = ?)
                ORDER BY n.resolved_at IS NOT NULL, n.at DESC, n.note_id""",
            (queue_row(db, queue)["queue_id"], person, person),
        ).fetchall()
    return [_note(row) for row in rows]


def _stored_note(ledger: Ledger, queue: str, note: str) -> ItemNote:
    with ledger.reading() as db:
        values = (queue_row(db, queue)["queue_id"], note)
        row = db.execute(f"{_READ} WHERE n.queue_id = ? AND n.note_id = ?", values).fetchone()
    if row is None:
        raise NotFoundError("there is no such note in this queue")
    return _note(row)


_READ = """SELECT n.*, i.item_id, p.payload FROM notes n JOIN queues q USING (queue_id)
           LEFT JOIN items i ON i.queue = q.name AND i.comparison_id = n.comparison_id
           LEFT JOIN payloads p USING (item_id)"""


def _note(row: sqlite3.Row) -> ItemNote:
    return ItemNote(
        row["note_id"],
        row["item_id"],
        "" if row["payload"] is None else excerpt_of(json.loads(row["payload"])),
        *(row[name] for name in ("person", "kind", "text", "at", "resolved_by", "resolved_at", "reply")),
    )


def excerpt_of(payload: dict[str, Any]) -> str:
    """The beginning of an item's last prompt turn, on one line."""
    text = " ".join(prompt_of(payload["messages"])[-1].text.split())
    return text if len(text) <= EXCERPT else text[:EXCERPT].rstrip() + "…"
