"""Carrying queues and votes from the store into the operational file: for a new queue, and after the file was lost."""

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
from assay_pipelines.annotation.queue_state import apply_change, carry_changes
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
    """Bring a queue and those of its items that the file lacks from the store; returns how many items.

    In the order of their content hashes: numbers, which annotators see, must not tell what is a gold check.
    """
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
            """SELECT i.comparison_id, i.priority, i.check_label, i.payload::VARCHAR,
                      p.messages, p.conversation, a.content, a.turns, b.content, b.turns
               FROM queue_items i
               JOIN comparisons c USING (comparison_id)
               JOIN prompts p USING (prompt_id)
               JOIN responses a ON a.response_id = c.response_a
               JOIN responses b ON b.response_id = c.response_b
               WHERE i.queue_id = ? ORDER BY i.comparison_id""",
            [queue[1]],
        )
        while rows := cursor.fetchmany(PAGE):
            with ledger.writing(durable=False) as sqlite:
                added += _add_items(sqlite, name, int(queue[4]), rows)
    added += _carry_tasks(workspace, ledger, name, queue[1], int(queue[4]))
    changes = carry_changes(workspace, queue[1])
    with ledger.writing() as sqlite:  # last: a queue that is there has all its items
        sqlite.execute(
            """INSERT OR IGNORE INTO queues (name, queue_id, overlap, gold_checks, seed, lease_seconds, guideline,
                                             run_id, created_at, project, closed)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (*settings, created, project, closed),
        )
        for change in changes:
            apply_change(sqlite, change)
    return added


def _carry_tasks(workspace: Workspace, ledger: Ledger, name: str, queue_id: str, seed: int) -> int:
    """Items that are no pair, with the texts of their responses."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT t.item, t.priority, t.payload ->> 'known', t.payload::VARCHAR, p.messages, p.conversation,
                      list({'text': r.content, 'turns': r.turns}
                           ORDER BY list_position(t.response_ids, r.response_id))
               FROM (SELECT *, from_json(payload -> 'response_ids', '["VARCHAR"]') AS response_ids
                     FROM queue_tasks WHERE queue_id = ?) t
               JOIN responses r ON list_contains(t.response_ids, r.response_id)
               JOIN prompts p USING (prompt_id) GROUP BY ALL ORDER BY t.item""",
            [queue_id],
        ).fetchall()
    added = 0
    for start in range(0, len(rows), PAGE):
        with ledger.writing(durable=False) as sqlite:
            added += _add_items(sqlite, name, seed, rows[start : start + PAGE])
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


def _add_items(db: "sqlite3.Connection", queue: str, seed: int, rows: list[Any]) -> int:
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
            (json.dumps(json.loads(payload) | _payload_texts(messages, texts), ensure_ascii=False), queue, comparison)
            for comparison, _, _, payload, messages, *texts in rows
        ),
    )
    return added


def _payload_texts(messages: list[dict[str, str]], texts: list[Any]) -> dict[str, Any]:
    """`texts`: the prompt's JSON where it is more than text; then of A and of B the text and such JSON, or one list of
    both for the responses of an item that is no pair."""
    conversation, *sides = texts
    payload = {"messages": messages if conversation is None else json.loads(conversation)}
    if isinstance(sides[0], list):
        responses = [response["text"] for response in sides[0]]
        turns = [json.loads(response["turns"]) if response["turns"] else None for response in sides[0]]
        typed = {"turns": turns} if any(turns) else {}
        return payload | typed | {"responses": responses, "a": responses[0], "b": (*responses, "")[1]}
    a, a_turns, b, b_turns = sides
    return payload | {
        "a": a if a_turns is None else json.loads(a_turns),
        "b": b if b_turns is None else json.loads(b_turns),
    }


def _carry_votes(workspace: Workspace, ledger: Ledger, queue: str) -> tuple[int, int]:
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT judgment_id, comparison_id, annotator, kind, role, attempt, answer, strength, confidence,
                      rationale, coalesce(shown_order, 'AB'), seconds, epoch(created_at), epoch(withdrawn_at),
                      guideline, suggestion
               FROM queue_votes LEFT JOIN vote_contexts USING (judgment_id)
               WHERE queue = ? ORDER BY created_at, judgment_id""",
            [queue],
        ).fetchall()
        principle_rows = db.execute(
            """SELECT v.judgment_id, p.side, n.statement, p.answer, p.evidence
               FROM vote_principles p JOIN queue_votes v USING (judgment_id) JOIN principles n USING (principle_id)
               WHERE v.queue = ?""",
            [queue],
        ).fetchall()
        answers = db.execute(
            """SELECT a.answer_id, a.item, n.name, n.kind, coalesce(a.role, 'queue'), a.attempt,
                      if(a.labels = '{}', 'skip', 'answered'),
                      NULL, NULL, a.rationale, coalesce(a.shown_order, 'AB'), a.seconds, epoch(a.created_at),
                      epoch(w.withdrawn_at), c.guideline, c.suggestion, a.labels::VARCHAR
               FROM queue_answers a JOIN annotators n USING (annotator_id)
               LEFT JOIN vote_contexts c ON c.judgment_id = a.answer_id
               LEFT JOIN withdrawn_judgments w ON w.judgment_id = a.answer_id
               WHERE a.queue = ? ORDER BY a.created_at, a.answer_id""",
            [queue],
        ).fetchall()
    rows += [answer[:-1] for answer in answers]
    if not rows:
        return 0, 0
    votes = withdrawn = 0
    with ledger.writing() as db:
        items = dict(db.execute("SELECT comparison_id, item_id FROM items WHERE queue = ?", (queue,)).fetchall())
        touched = set()
        for (
            judgment,
            comparison,
            annotator,
            kind,
            role,
            attempt,
            answer,
            *more,
            at,
            gone,
            guideline,
            suggestion,
        ) in rows:
            if (item := items.get(comparison)) is None:
                continue
            db.execute("INSERT OR IGNORE INTO annotators (name, kind) VALUES (?, ?)", (annotator, kind))
            where = {"queue": "vote", "adjudication:open": "open"}.get(role, "blind")
            counts = outcome_of(answer, more[2]) is not None
            votes += db.execute(
                f"INSERT OR IGNORE INTO votes VALUES ({', '.join('?' * 16)})",
                (judgment, item, annotator, where, attempt, answer, *more, counts, at, gone, guideline, suggestion),
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
        db.executemany("INSERT OR IGNORE INTO vote_labels VALUES (?, ?)", [(row[0], row[-1]) for row in answers])
        for item in touched:
            recount(db, item)
    return votes, withdrawn
