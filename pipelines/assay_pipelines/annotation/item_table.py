"""The items of a queue as those who run it see them, many at once; sending some of them to another queue.

Leaves out: removing, returning and assigning items (`queue_edits`), deciding by their votes (`resolution`).
"""

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from assay.errors import BadInputError
from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem, ShownOpinion
from assay_pipelines.annotation.notes import excerpt_of
from assay_pipelines.annotation.question_types.question_type import TASKS, question_of
from assay_pipelines.annotation.queue_edits import item_ids
from assay_pipelines.annotation.queues import add_items, find_queue
from assay_pipelines.annotation.recording import record_event
from assay_pipelines.annotation.recovery import carry
from assay_pipelines.annotation.service import AnnotationService, queue_row
from assay_pipelines.annotation.votes import item_votes

#: open: fewer votes than asked for. conflict: without a majority or an adjudication. noted: with an open note.
ItemState: TypeAlias = Literal["open", "done", "conflict", "noted", "check", "removed"]


@dataclass(frozen=True, slots=True)
class ItemRow:
    """`item`: its number. `asks_about`: id of a comparison, response or prompt. `answers`: what was said -> how often.
    `people`: who alone are asked; `before`: who have it before them now. `notes`: open ones."""

    item: int
    asks_about: str
    excerpt: str
    states: tuple[ItemState, ...]
    answers: Mapping[str, int]
    voters: tuple[str, ...]
    people: tuple[str, ...]
    before: tuple[str, ...]
    notes: int


_NOTES = """(SELECT count(*) FROM notes n WHERE n.queue_id = q.queue_id AND n.comparison_id = i.comparison_id
              AND n.resolved_at IS NULL)"""
_CONFLICT = """(i.conflict AND NOT EXISTS (SELECT 1 FROM votes a WHERE a.item_id = i.item_id AND a.role <> 'vote'
                AND a.counts AND a.withdrawn_at IS NULL))"""
_STATES: Mapping[ItemState, str] = {
    "open": "NOT i.done AND NOT i.is_check",
    "done": "i.done AND NOT i.removed",
    "conflict": _CONFLICT,
    "noted": f"{_NOTES} > 0",
    "check": "i.is_check AND NOT i.removed",
    "removed": "i.removed",
}


def queue_items(
    service: AnnotationService,
    queue: str,
    *,
    state: ItemState | None = None,
    person: str = "",
    text: str = "",
    start: int = 0,
    most: int = 100,
) -> tuple[list[ItemRow], int]:
    """Those of a state, on which a person voted or which are assigned to them, whose texts hold `text`; and how
    many."""
    conditions = ["i.queue = :queue", _STATES[state] if state is not None else "true"]
    if person:
        conditions.append(
            """(EXISTS (SELECT 1 FROM votes v WHERE v.item_id = i.item_id AND v.annotator = :person)
                OR EXISTS (SELECT 1 FROM item_people a WHERE a.queue_id = q.queue_id
                           AND a.comparison_id = i.comparison_id AND a.annotator = :person))"""
        )
    if text:
        conditions.append("instr(lower(p.payload), lower(:text)) > 0")
    source = f"""FROM items i JOIN queues q ON q.name = i.queue JOIN payloads p USING (item_id)
                 WHERE {" AND ".join(conditions)}"""
    with service.ledger.reading() as db:
        escaped = json.dumps(text, ensure_ascii=False)[1:-1]  # as the payload's JSON has it
        values: dict[str, Any] = {"queue": queue_row(db, queue)["name"], "person": person, "text": escaped}
        (total,) = db.execute(f"SELECT count(*) {source}", values).fetchone()
        rows = db.execute(
            f"""SELECT i.*, q.queue_id, p.payload, {_CONFLICT} AS unsettled, {_NOTES} AS notes {source}
                ORDER BY i.item_id LIMIT :most OFFSET :start""",
            values | {"most": most, "start": start},
        ).fetchall()
        return [_row(db, row) for row in rows], int(total)


def _row(db: sqlite3.Connection, row: sqlite3.Row) -> ItemRow:
    votes = item_votes(db, row["item_id"])
    answers: dict[str, int] = {}
    for vote in votes:
        answers[vote.answer] = answers.get(vote.answer, 0) + 1
    about = (row["queue_id"], row["comparison_id"])
    people = db.execute(
        "SELECT annotator FROM item_people WHERE queue_id = ? AND comparison_id = ? ORDER BY annotator", about
    )
    before = db.execute(
        "SELECT annotator FROM leases WHERE item_id = ? AND expires_at > ? ORDER BY annotator",
        (row["item_id"], time.time()),
    )
    holds: dict[ItemState, bool] = {
        "open": not row["done"] and not row["is_check"],
        "done": bool(row["done"] and not row["removed"]),
        "conflict": bool(row["unsettled"]),
        "noted": row["notes"] > 0,
        "check": bool(row["is_check"] and not row["removed"]),
        "removed": bool(row["removed"]),
    }
    return ItemRow(
        row["item_id"],
        row["comparison_id"],
        excerpt_of(json.loads(row["payload"])),
        tuple(state for state, holding in holds.items() if holding),
        answers,
        tuple(vote.annotator for vote in votes),
        tuple(name for (name,) in people),
        tuple(name for (name,) in before),
        row["notes"],
    )


def send_items(workspace: Workspace, service: AnnotationService, queue: str, items: Sequence[int], to: str) -> int:
    """Ask about these in another queue too, as they are asked here; gold checks are left out. Returns how many were new
    there. Raises BadInputError where that one asks another question or is closed."""
    with service.ledger.reading() as db:
        source, target = queue_row(db, queue), find_name(db, to)
        ids = item_ids(db, source["name"], items)
        payloads = [
            (item, json.loads(payload))
            for item, payload in db.execute(
                """SELECT comparison_id, payload FROM items JOIN payloads USING (item_id)
                   WHERE queue = ? AND NOT is_check ORDER BY item_id""",
                (source["name"],),
            )
            if item in set(ids)
        ]
        other = db.execute(
            "SELECT payload FROM items JOIN payloads USING (item_id) WHERE queue = ? LIMIT 1", (target,)
        ).fetchone()
    if not payloads:
        raise BadInputError("none of these can be sent: items with a known answer stay in their queue")
    question = question_of(payloads[0][1])
    if other is not None and _asked_as(json.loads(other["payload"])) != _asked_as(payloads[0][1]):
        raise BadInputError(f"{to} asks another question than these items")
    if question not in TASKS:
        return add_items(workspace, target, [_queue_item(item, payload) for item, payload in payloads], None)
    return _send_tasks(workspace, service, source["queue_id"], target, [item for item, _ in payloads])


def find_name(db: sqlite3.Connection, queue: str) -> str:
    name: str = queue_row(db, queue)["name"]
    return name


def _asked_as(payload: Mapping[str, Any]) -> tuple[str, Any, Any]:
    settings = payload.get("settings", {})
    return question_of(payload), settings.get("scales"), settings.get("labels")


def _queue_item(comparison: str, payload: Mapping[str, Any]) -> QueueItem:
    return QueueItem(
        comparison,
        guideline=payload["guideline"],
        pre_verification=payload["pre_verification"],
        reason=payload["reason"],
        opinions=tuple(ShownOpinion(o["judge"], o["answer"], o["rationale"]) for o in payload["opinions"]),
        principles=tuple(payload.get("principles", ())),
        question=question_of(payload),
    )


def _send_tasks(
    workspace: Workspace, service: AnnotationService, source_id: str, target: str, items: Sequence[str]
) -> int:
    import pyarrow as pa

    queue = find_queue(service.ledger, target)
    if queue.closed:
        raise BadInputError(f"queue {target!r} is closed: reopen it first")
    with (
        workspace.store.unit() as db,
        registered(db, "sent", pa.table({"item": pa.array(list(items), pa.string())})),
    ):
        row = db.execute(
            """INSERT INTO queue_tasks SELECT $target, item, priority, payload, NULL
               FROM queue_tasks SEMI JOIN sent USING (item) WHERE queue_id = $source ON CONFLICT DO NOTHING""",
            {"target": queue.id, "source": source_id},
        ).fetchone()
        added = int(row[0]) if row else 0
        record_event(db, queue.id, "extended", {"items": added}, None)
    carry(workspace, service.ledger, target)
    return added
