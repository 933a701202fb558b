"""Carrying queues and votes from the store into the operational file: for a new queue, and after the file was lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.annotation.vote_journal import fold
from assay.domain import PrincipleAnswer
from assay.workspace import Workspace
from assay_pipelines.annotation.assignment import draw
from assay_pipelines.annotation.ledger import FILE, Ledger
from assay_pipelines.annotation.question_types.principles import keep_answers
from assay_pipelines.annotation.question_types.question_type import outcome_of
from assay_pipelines.annotation.votes import recount

if TYPE_CHECKING:
    import sqlite3

PAGE = 1_000  #: items carried at once


@dataclass(frozen=True)
class Recovery:
    """What a recovery added to the operational file."""

    queues: int = 0
    items: int = 0
    votes: int = 0
    withdrawn: int = 0


def open_ledger(workspace: Workspace) -> Ledger:
    """The workspace's operational file; a missing one is rebuilt from store and journal.

    Raises BusyError for such a one while another process holds the store.
    """
    ledger = Ledger(workspace.root / FILE, wait=workspace.wait)
    try:
        if not ledger.complete:  # new, or a recovery was cut off
            recover(workspace, ledger)
            ledger.mark_complete()
    except BaseException:
        ledger.close()
        raise
    return ledger


def carry(workspace: Workspace, ledger: Ledger, name: str) -> int:
    """Bring a queue and those of its items that the file lacks from the store; returns how many items."""
    with workspace.store.unit() as db:
        queue = db.execute(
            """SELECT name, queue_id, overlap, gold_checks, seed, lease_seconds, guideline, run_id, epoch(created_at),
                      coalesce(project, 'default'),
                      coalesce((SELECT arg_max(event, happened_at) FROM queue_events e
                                WHERE e.queue_id = q.queue_id AND event IN ('closed', 'reopened')) = 'closed', false)
               FROM queues q WHERE name = ?""",
            [name],
        ).fetchone()
    if queue is None:
        return 0
    *settings, created, project, closed = queue
    added = 0
    with workspace.store.unit() as db:
        cursor = db.execute(
            """SELECT i.comparison_id, i.priority, i.check_label, i.payload::VARCHAR, p.messages, a.content, b.content
               FROM queue_items i
               JOIN comparisons c USING (comparison_id)
               JOIN prompts p USING (prompt_id)
               JOIN responses a ON a.response_id = c.response_a
               JOIN responses b ON b.response_id = c.response_b
               WHERE i.queue_id = ?""",
            [queue[1]],
        )
        while rows := cursor.fetchmany(PAGE):
            with ledger.writing(durable=False) as sqlite:
                added += _add_items(sqlite, name, int(queue[4]), rows)
    with ledger.writing() as sqlite:  # last: a queue that is there has all its items
        sqlite.execute(
            """INSERT OR IGNORE INTO queues (name, queue_id, overlap, gold_checks, seed, lease_seconds, guideline,
                                             run_id, created_at, project, closed)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (*settings, created, project, closed),
        )
    return added


def recover(workspace: Workspace, ledger: Ledger) -> Recovery:
    """Bring everything the file lacks: queues, items, and the votes that the journal or the store have.

    Raises BusyError while another process holds the store.
    """
    fold(workspace)
    with workspace.store.unit() as db:
        names = [row[0] for row in db.execute("SELECT name FROM queues ORDER BY created_at, name").fetchall()]
    with ledger.reading() as sqlite:
        present = {row["name"] for row in sqlite.execute("SELECT name FROM queues")}
    items = votes = withdrawn = 0
    for name in names:
        items += carry(workspace, ledger, name)
        more, taken_back = _carry_votes(workspace, ledger, name)
        votes, withdrawn = votes + more, withdrawn + taken_back
    return Recovery(len(set(names) - present), items, votes, withdrawn)


def _add_items(db: sqlite3.Connection, queue: str, seed: int, rows: list[Any]) -> int:
    added = db.executemany(
        """INSERT OR IGNORE INTO items (queue, comparison_id, priority, draw, check_label, is_check)
           VALUES (?, ?, ?, ?, ?, ?)""",
        [
            (queue, comparison, priority, draw("item", seed, comparison), label, label is not None)
            for comparison, priority, label, *_ in rows
        ],
    ).rowcount
    db.executemany(
        """INSERT OR IGNORE INTO payloads (item_id, payload)
           SELECT item_id, ? FROM items WHERE queue = ? AND comparison_id = ?""",
        (
            (
                json.dumps(json.loads(payload) | {"messages": messages, "a": a, "b": b}, ensure_ascii=False),
                queue,
                comparison,
            )
            for comparison, _, _, payload, messages, a, b in rows
        ),
    )
    return added


def _carry_votes(workspace: Workspace, ledger: Ledger, queue: str) -> tuple[int, int]:
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT judgment_id, comparison_id, annotator, kind, role, attempt, answer, strength, confidence,
                      rationale, coalesce(shown_order, 'AB'), seconds, epoch(created_at), epoch(withdrawn_at)
               FROM queue_votes WHERE queue = ? ORDER BY created_at, judgment_id""",
            [queue],
        ).fetchall()
        principle_rows = db.execute(
            """SELECT v.judgment_id, p.side, n.statement, p.answer, p.evidence
               FROM vote_principles p JOIN queue_votes v USING (judgment_id) JOIN principles n USING (principle_id)
               WHERE v.queue = ?""",
            [queue],
        ).fetchall()
    if not rows:
        return 0, 0
    votes = withdrawn = 0
    with ledger.writing() as db:
        items = dict(db.execute("SELECT comparison_id, item_id FROM items WHERE queue = ?", (queue,)).fetchall())
        touched = set()
        for judgment, comparison, annotator, kind, role, attempt, answer, *more, at, gone in rows:
            if (item := items.get(comparison)) is None:
                continue
            db.execute("INSERT OR IGNORE INTO annotators (name, kind) VALUES (?, ?)", (annotator, kind))
            where = {"queue": "vote", "adjudication:open": "open"}.get(role, "blind")
            counts = outcome_of(answer, more[2]) is not None
            votes += db.execute(
                "INSERT OR IGNORE INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (judgment, item, annotator, where, attempt, answer, *more, counts, at, gone),
            ).rowcount
            if gone is not None:
                withdrawn += db.execute(
                    "UPDATE votes SET withdrawn_at = ? WHERE judgment_id = ? AND withdrawn_at IS NULL", (gone, judgment)
                ).rowcount
            db.execute(
                "DELETE FROM leases WHERE item_id = ? AND annotator = ? AND attempt <= ?", (item, annotator, attempt)
            )
            touched.add(item)
        for judgment, *answer_fields in principle_rows:
            keep_answers(db, judgment, [PrincipleAnswer(*answer_fields)])
        for item in touched:
            recount(db, item)
    return votes, withdrawn
