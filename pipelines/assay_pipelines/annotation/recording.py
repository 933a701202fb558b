"""Queues in the store: recording their items, gold checks and events."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from assay import ids
from assay.data.pair_attributes import load_attributes
from assay.data.response_checks import load_response_checks
from assay.errors import BadInputError, BusyError
from assay.store.database import Connection, registered
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.queue_options import QueueOptions

#: People per item; "all": everyone labels everything, until the queue is closed.
Overlap: TypeAlias = int | Literal["all"]

LEAST_CHECKS = 5  #: gold checks of a small queue, where so many are known
DEFAULT_PROJECT = "default"  #: of queues for which none is named
SETTINGS = ("overlap", "gold_checks", "seed", "lease_seconds", "guideline")


@dataclass(frozen=True)
class Queue:
    """`items` are the comparisons asked about; `checks` the gold checks mixed in beside them. `project`: whose members
    are asked; of them, where they are not None, `people` and those of `groups` alone. `guideline`: its current version.
    `name`: of all records; `title`: what people see. A `deleted` queue keeps its name, for its votes have it."""

    name: str
    id: str
    overlap: Overlap
    gold_checks: float  #: share of what each person is shown
    seed: int
    lease_seconds: float
    guideline: str
    project: str
    closed: bool
    run_id: str | None
    items: int
    checks: int
    title: str = ""
    guideline_version: int = 1
    first_guideline: str | None = None  #: where it has been edited since
    options: QueueOptions = field(default_factory=QueueOptions)
    people: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    paused: bool = False
    deleted: bool = False

    @property
    def settings(self) -> tuple[Any, ...]:
        """What it was made with, as both stores hold it: with overlap 0 everyone labels everything."""
        number = 0 if self.overlap == "all" else self.overlap
        guideline = self.guideline if self.first_guideline is None else self.first_guideline
        return (number, self.gold_checks, self.seed, self.lease_seconds, guideline)


def record_queue(workspace: Workspace, queue: Queue, items: Sequence[QueueItem]) -> int:
    """Write the queue if it is new, and those of the items that it does not have; returns how many items were new.

    An item that is there keeps what it was asked with. Raises BadInputError for another queue of the name, new items
    for a closed one, and a comparison that the store does not hold.
    """
    first: dict[str, QueueItem] = {}
    for item in items:
        first.setdefault(item.comparison_id, item)
    with workspace.store.unit() as db:
        exists = same_settings(db, queue)
        new = [first[comparison] for comparison in _new(db, queue.id, list(first))]
        if exists and not new:
            return 0
        if exists and is_closed(db, queue.id):
            raise BadInputError(
                f"queue {queue.name!r} is closed: choose a new name, or `assay queue reopen {queue.name}`"
            )
        checks = _draw_checks(db, queue, list(first), ordinary=len(new))
    drawn_ids = [comparison for comparison, _ in checks]
    attributes = load_attributes(workspace, [i.comparison_id for i in new if i.attributes is None] + drawn_ids)
    verified = load_response_checks(workspace, [i.comparison_id for i in new if not i.pre_verification] + drawn_ids)
    judged = _judges_opinions(workspace, [i.comparison_id for i in new if i.opinions is None] + drawn_ids)

    def payload_of(item: QueueItem) -> str:
        payload = item.payload()
        if payload["attributes"] is None and (stored := attributes.get(item.comparison_id)) is not None:
            payload["attributes"] = stored.to_dict()
        if not payload["pre_verification"] and item.comparison_id in verified:
            payload["pre_verification"] = verified[item.comparison_id].payload()
        if item.opinions is None:
            payload["opinions"] = judged.get(item.comparison_id, [])
        return json.dumps(payload, ensure_ascii=False)

    with workspace.store.unit() as db:
        if not exists:
            insert_queue(db, queue)
        added = _insert(db, queue, [(i.comparison_id, i.priority, payload_of(i), None) for i in new])
        # a gold check borrows an ordinary item's reason, principles, lack of opinions: nothing may tell that it is one
        ordinary = new or [QueueItem("")]
        like = [ordinary[number * len(ordinary) // len(checks)] for number in range(len(checks))]
        drawn = [
            (
                comparison,
                0.0,
                payload_of(
                    QueueItem(
                        comparison,
                        reason=item.reason,
                        principles=item.principles,
                        opinions=() if item.opinions == () else None,
                    )
                ),
                label,
            )
            for (comparison, label), item in zip(checks, like, strict=True)
        ]
        _insert(db, queue, drawn)
        if not exists or added:
            event = "extended" if exists else "created"
            record_event(db, queue.id, event, {"items": added, "checks": len(checks)}, queue.run_id)
        if exists and queue.run_id is not None:
            _link_run(db, queue)
    return added


def insert_queue(db: Connection, queue: Queue) -> None:
    """Write a new queue, without items, and that its run made it."""
    db.execute(
        """INSERT INTO queues (queue_id, name, overlap, gold_checks, seed, lease_seconds, guideline, run_id,
                               project) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        [queue.id, queue.name, *queue.settings, queue.run_id, queue.project],
    )
    if queue.run_id is not None:
        _link_run(db, queue)


def _link_run(db: Connection, queue: Queue) -> None:
    db.execute(
        "INSERT INTO run_links VALUES (?, 'output', 'queue', ?) ON CONFLICT DO NOTHING", [queue.run_id, queue.id]
    )


def record_event(db: Connection, queue_id: str, event: str, detail: Mapping[str, Any], run_id: str | None) -> None:
    now = time.time()
    db.execute(
        "INSERT INTO queue_events VALUES (?, ?, ?, ?, ?, to_timestamp(?))",
        [event_id(queue_id, event, now), queue_id, event, json.dumps(dict(detail)), run_id, now],
    )


def event_id(queue_id: str, event: str, at: float) -> str:
    return "e-" + ids.digest(f"{queue_id}{ids.FIELD}{event}{ids.FIELD}{at}")


def sync_events(workspace: Workspace, ledger: Ledger) -> None:
    """Put closings and the like into the store, if no other process holds it now."""
    with ledger.reading() as sqlite:
        rows = sqlite.execute(
            "SELECT event_id, queue_id, event, detail, run_id, at FROM events WHERE NOT stored"
        ).fetchall()
    if not rows:
        return
    try:
        with Workspace(workspace.root, wait=0.0).store.unit() as db:
            for row in rows:
                db.execute(
                    "INSERT INTO queue_events VALUES (?, ?, ?, ?, ?, to_timestamp(?)) ON CONFLICT DO NOTHING", list(row)
                )
    except BusyError:
        return
    with ledger.writing(durable=False) as sqlite:
        sqlite.executemany("UPDATE events SET stored = 1 WHERE event_id = ?", [(row["event_id"],) for row in rows])


def same_settings(db: Connection, queue: Queue) -> bool:
    """Whether the queue is there already, with these settings."""
    row = db.execute(f"SELECT {', '.join(SETTINGS)} FROM queues WHERE name = ?", [queue.name]).fetchone()
    if row is None:
        return False
    if tuple(row) != queue.settings:
        changed = next(s for s, old, new in zip(SETTINGS, row, queue.settings, strict=True) if old != new)
        raise BadInputError(f"queue {queue.name!r} exists with another {changed}: choose a new name", field=changed)
    return True


def is_closed(db: Connection, queue_id: str) -> bool:
    last = db.execute(
        """SELECT arg_max(event, happened_at) FROM queue_events
           WHERE queue_id = ? AND event IN ('closed', 'reopened')""",
        [queue_id],
    ).fetchone()
    return last is not None and last[0] == "closed"


def _judges_opinions(workspace: Workspace, comparisons: list[str]) -> dict[str, list[dict[str, str]]]:
    """Judges' opinions of the comparisons, as a payload holds them: shown to annotators after their vote."""
    from assay_pipelines.judging.asking import opinions  # brings an HTTP client with it

    with workspace.store.unit() as db:
        judges = dict(
            db.execute(
                """SELECT annotator_id, name FROM annotators
                   WHERE kind IN ('llm', 'reward_model', 'verifier') ORDER BY name, annotator_id"""
            ).fetchall()
        )
        by_comparison = opinions(db, comparisons, list(judges)) if judges else {}
    return {
        comparison: [
            {"judge": name, "answer": by[judge].answer, "rationale": by[judge].rationale or ""}
            for judge, name in judges.items()
            if judge in by and by[judge].answer != "skip"
        ]
        for comparison, by in by_comparison.items()
    }


def _new(db: Connection, queue_id: str, comparisons: list[str]) -> list[str]:
    """Those that the queue does not have, in the given order. Raises BadInputError for one the store does not hold."""
    import pyarrow as pa

    with registered(db, "wanted", pa.table({"comparison_id": pa.array(comparisons, pa.string())})):
        missing = db.execute(
            "SELECT comparison_id FROM wanted ANTI JOIN comparisons USING (comparison_id) LIMIT 1"
        ).fetchall()
        if missing:
            raise BadInputError(f"the store holds no comparison {missing[0][0]}", field="comparison_id")
        rows = db.execute(
            "SELECT comparison_id FROM queue_items SEMI JOIN wanted USING (comparison_id) WHERE queue_id = ?",
            [queue_id],
        ).fetchall()
    queued = {row[0] for row in rows}
    return [comparison for comparison in comparisons if comparison not in queued]


def _draw_checks(db: Connection, queue: Queue, comparisons: list[str], *, ordinary: int) -> list[tuple[str, str]]:
    """Gold pairs and their labels, so many that one person can do the whole queue at its rate of checks."""
    import pyarrow as pa

    rate = queue.gold_checks
    if not rate:
        return []
    row = db.execute(
        """SELECT count(*) FILTER (check_label IS NULL), count(*) FILTER (check_label IS NOT NULL)
           FROM queue_items WHERE queue_id = ?""",
        [queue.id],
    ).fetchone()
    before, checks = row if row is not None else (0, 0)
    if not before + ordinary:
        return []
    with registered(db, "wanted", pa.table({"comparison_id": pa.array(comparisons, pa.string())})):
        return db.execute(
            """SELECT comparison_id, label FROM current_decisions
               WHERE pool = 'gold' AND label IN ('A', 'B')
                 AND comparison_id NOT IN (SELECT comparison_id FROM wanted)
                 AND comparison_id NOT IN (SELECT comparison_id FROM queue_items WHERE queue_id = $queue)
               ORDER BY sha256('check' || chr(31) || $seed || chr(31) || comparison_id) LIMIT $limit""",
            {"queue": queue.id, "seed": str(queue.seed), "limit": max(0, checks_for(before + ordinary, rate) - checks)},
        ).fetchall()


def checks_for(items: int, rate: float) -> int:
    """Gold checks of a queue of so many other items."""
    return max(LEAST_CHECKS, round(items * rate / (1 - rate)))


def _insert(db: Connection, queue: Queue, rows: Sequence[tuple[str, float, str, str | None]]) -> int:
    """Rows of comparison, priority, payload and known label; the decision in force is noted beside each."""
    import pyarrow as pa

    if not rows:
        return 0
    comparisons, priorities, payloads, labels = zip(*rows, strict=True)
    table = pa.table(
        {
            "comparison_id": pa.array(comparisons, pa.string()),
            "priority": pa.array(priorities, pa.float64()),
            "payload": pa.array(payloads, pa.string()),
            "check_label": pa.array(labels, pa.string()),
        }
    )
    with registered(db, "incoming", table):
        row = db.execute(
            """INSERT INTO queue_items
               SELECT $queue, i.comparison_id, i.priority, i.payload, i.check_label, d.position, $run
               FROM incoming i LEFT JOIN current_decisions d USING (comparison_id) ON CONFLICT DO NOTHING""",
            {"queue": queue.id, "run": queue.run_id},
        ).fetchone()
    return int(row[0]) if row else 0
