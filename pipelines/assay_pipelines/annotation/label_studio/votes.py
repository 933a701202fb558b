"""Revisions and deletions seen in Label Studio, put into the store as votes, by polls and webhook events alike.

Both are sets that only grow; of each annotation the newest revision stands unless it or its task is gone. So any order
of polls and events, with repeats, ends in the same votes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Literal

from assay.domain import ShownOrder
from assay.store.database import Connection, registered
from assay.store.records import insert_annotator, insert_judgments
from assay_pipelines.annotation.label_studio.project import EPOCH
from assay_pipelines.annotation.label_studio.reading import Revision, annotator_name, as_judgment


@dataclass(frozen=True, slots=True)
class Deletion:
    """A task or an annotation that is no longer there."""

    kind: Literal["task", "annotation"]
    id: int
    project_id: int


@dataclass
class VoteCounts:
    """What was new. `unreadable`: revisions that could not become votes, their note says why. `foreign`: annotations of
    tasks that this workspace does not know."""

    votes: int = 0
    withdrawn: int = 0
    deleted: int = 0
    unreadable: int = 0
    foreign: int = 0

    def __iadd__(self, other: "VoteCounts") -> "VoteCounts":
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self


def record(
    db: Connection,
    server: str,
    revisions: Iterable[Revision],
    deletions: Iterable[Deletion],
    run_id: str | None,
) -> VoteCounts:
    """Write what was seen and settle which votes stand, in the caller's unit of work. A repeat writes nothing."""
    counts = VoteCounts()
    counts.deleted = _insert_deletions(db, server, deletions, run_id)
    unique = list({(r.annotation_id, r.revision): r for r in revisions}.values())
    seen = _known_revisions(db, server, unique)
    tasks = _tasks(db, server, {r.task_id for r in unique})
    fresh = []
    for revision in unique:
        if revision.task_id not in tasks:
            counts.foreign += 1
        elif (revision.annotation_id, _microseconds(revision)) not in seen:
            fresh.append(revision)
    judgments = {}
    for revision in fresh:
        comparison_id, shown_order = tasks[revision.task_id]
        judgment = as_judgment(revision, server, comparison_id, shown_order)
        if judgment is None:
            counts.unreadable += 1
        else:
            judgments[revision.annotation_id, revision.revision] = judgment
    for user in {r.user_id for r in fresh if (r.annotation_id, r.revision) in judgments}:
        insert_annotator(db, "human", annotator_name(server, user), {"server": server, "user": user})
    counts.votes = insert_judgments(db, judgments.values(), run_id)
    if fresh:
        db.executemany(
            """INSERT INTO label_studio_annotations (server, project_id, task_id, annotation_id, revision, completed_by,
                                                     judgment_id, note, run_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            [
                (
                    server,
                    r.project_id,
                    r.task_id,
                    r.annotation_id,
                    r.revision,
                    r.user_id,
                    judgments[r.annotation_id, r.revision].id if (r.annotation_id, r.revision) in judgments else None,
                    r.note,
                    run_id,
                )
                for r in fresh
            ],
        )
    counts.withdrawn = _settle(db, server)
    return counts


def _settle(db: Connection, server: str) -> int:
    """Withdraw every vote that is not of a current revision; returns how many were."""
    row = db.execute(
        """INSERT INTO withdrawn_judgments (judgment_id, reason, withdrawn_at)
           SELECT judgment_id, if(standing = 'deleted', 'deleted in Label Studio', 'edited in Label Studio'), now()
           FROM label_studio_revisions r
           WHERE server = $server AND judgment_id IS NOT NULL AND standing <> 'current'
             AND NOT EXISTS (SELECT 1 FROM withdrawn_judgments w WHERE w.judgment_id = r.judgment_id)""",
        {"server": server},
    ).fetchone()
    return int(row[0]) if row else 0


def _insert_deletions(db: Connection, server: str, deletions: Iterable[Deletion], run_id: str | None) -> int:
    import pyarrow as pa

    rows = list({(d.kind, d.id): d for d in deletions}.values())
    if not rows:
        return 0
    table = pa.table(
        {"kind": [d.kind for d in rows], "id": [d.id for d in rows], "project_id": [d.project_id for d in rows]}
    )
    with registered(db, "gone", table):
        row = db.execute(
            """INSERT INTO label_studio_deletions (server, kind, id, project_id, run_id)
               SELECT $server, g.kind, g.id, g.project_id, $run FROM gone g
               WHERE NOT EXISTS (SELECT 1 FROM label_studio_deletions d
                                 WHERE d.server = $server AND d.kind = g.kind AND d.id = g.id)""",
            {"server": server, "run": run_id},
        ).fetchone()
    return int(row[0]) if row else 0


def _known_revisions(db: Connection, server: str, revisions: Sequence[Revision]) -> set[tuple[int, int]]:
    rows = db.execute(
        """SELECT annotation_id, epoch_us(revision) FROM label_studio_annotations
           WHERE server = $server AND list_contains($ids, annotation_id)""",
        {"server": server, "ids": [r.annotation_id for r in revisions]},
    ).fetchall()
    return {(annotation, revision) for annotation, revision in rows}


def _microseconds(revision: Revision) -> int:
    """Since 1970, exactly: DuckDB gives aware times to Python only where pytz is installed."""
    return (revision.revision - EPOCH) // timedelta(microseconds=1)


def _tasks(db: Connection, server: str, task_ids: Iterable[int]) -> Mapping[int, tuple[str, ShownOrder]]:
    rows = db.execute(
        """SELECT task_id, comparison_id, shown_order FROM label_studio_tasks
           WHERE server = $server AND list_contains($ids, task_id)""",
        {"server": server, "ids": sorted(task_ids)},
    ).fetchall()
    return {task: (comparison, order) for task, comparison, order in rows}
