"""One's own earlier answers in a queue: reading them, and opening one for another answer.

The other answer takes the place of the one that stands when it is cast; the first stays in the records, withdrawn.
Leaves out: taking one's last answer back (`AnnotationService.undo`).
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.errors import ConflictError
from assay_pipelines.annotation.assignment import Assignment, Ticket, lease_item
from assay_pipelines.annotation.notes import excerpt_of
from assay_pipelines.annotation.question_types.question_type import question_of
from assay_pipelines.annotation.service import AnnotationService, queue_row
from assay_pipelines.annotation.votes import QueueVote, vote_of


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """A standing answer. `item`: number in the queue. `changes`: answers of the same person on it that were taken back.
    `notes`: of this person on it."""

    ticket: str
    item: int
    excerpt: str
    vote: QueueVote
    changes: int
    notes: int
    payload: Mapping[str, Any] = field(repr=False)

    @property
    def response_ids(self) -> list[str]:
        """Of an item that is no pair, in the order shown."""
        listed: list[str] = self.payload.get("response_ids", [])
        return listed if self.vote.shown_order == "AB" else listed[::-1]

    @property
    def question(self) -> str:
        return question_of(self.payload)


_READ = """SELECT v.judgment_id, i.comparison_id, v.annotator, v.answer, v.strength, v.confidence, v.rationale,
                  v.shown_order, v.seconds, v.at, v.role, l.labels, v.attempt > 1 AS undo, v.guideline, v.suggestion,
                  v.item_id, v.attempt, p.payload,
                  (SELECT count(*) FROM votes o WHERE o.item_id = v.item_id AND o.annotator = v.annotator
                   AND o.role = 'vote' AND o.withdrawn_at IS NOT NULL) AS changes,
                  (SELECT count(*) FROM notes n JOIN queues q USING (queue_id) WHERE q.name = i.queue
                   AND n.comparison_id = i.comparison_id AND n.person = v.annotator) AS notes
           FROM votes v JOIN items i USING (item_id) JOIN payloads p USING (item_id)
           LEFT JOIN vote_labels l USING (judgment_id)
           WHERE i.queue = :queue AND v.annotator = :who AND v.role = 'vote' AND v.withdrawn_at IS NULL"""
_OF_ANSWER = ("item_id", "attempt", "payload", "changes", "notes")


def own_answers(
    service: AnnotationService, queue: str, annotator: str, *, start: int = 0, most: int = 50
) -> tuple[list[OwnAnswer], int]:
    """Newest first, and how many there are."""
    with service.ledger.reading() as db:
        values = {"queue": queue_row(db, queue)["name"], "who": annotator, "start": start, "most": most}
        rows = db.execute(f"{_READ} ORDER BY v.at DESC, v.item_id LIMIT :most OFFSET :start", values).fetchall()
        (total,) = db.execute(f"SELECT count(*) FROM ({_READ})", values).fetchone()
    return [_answer(row) for row in rows], int(total)


def standing_answer(service: AnnotationService, assignment: Assignment) -> OwnAnswer | None:
    """What stands of the person on the item that is before them: of one whose answer they change."""
    ticket = Ticket.parse(assignment.ticket)
    if ticket is None or ticket.attempt == 1:
        return None
    with service.ledger.reading() as db:
        values = {"queue": assignment.queue, "who": assignment.annotator, "item": ticket.item_id}
        row = db.execute(f"{_READ} AND v.item_id = :item", values).fetchone()
    return None if row is None else _answer(row)


def reopen_answer(service: AnnotationService, queue: str, ticket: str, annotator: str) -> Assignment:
    """The item again, for another answer; until that is cast the first stands. Raises ConflictError once the queue is
    closed, when others' agreement may be read, and for an answer that stands no more."""
    name = Ticket.parse(ticket)
    with service.ledger.writing(durable=False) as db:
        row, record = None, queue_row(db, queue)
        if name is not None and name.role == "vote":
            row = db.execute(
                """SELECT 1 FROM votes v JOIN items i USING (item_id) WHERE v.item_id = ? AND v.annotator = ?
                   AND v.role = 'vote' AND v.attempt = ? AND v.withdrawn_at IS NULL AND i.queue = ?""",
                (name.item_id, annotator, name.attempt, record["name"]),
            ).fetchone()
        if name is None or row is None:
            raise ConflictError("that is not an answer of yours that stands: look at your answers again")
        if record["closed"] or record["deleted"]:
            raise ConflictError("the queue is closed: its answers stay as they are")
        return lease_item(db, record, annotator, name.item_id, "vote")


def _answer(row: sqlite3.Row) -> OwnAnswer:
    values = dict(row)
    item, attempt, payload, changes, notes = (values.pop(name) for name in _OF_ANSWER)
    content = json.loads(payload)
    ticket = str(Ticket(item, attempt, "vote"))
    return OwnAnswer(ticket, item, excerpt_of(content), vote_of(values), changes, notes, content)
