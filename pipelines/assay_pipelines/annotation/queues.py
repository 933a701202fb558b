"""Queues of comparisons for annotators: creating, extending and closing them, their progress and votes.

A queue is recorded in the store first and carried into the operational file, so that repeating completes it.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from assay import ids
from assay.data.pair_attributes import load_attributes
from assay.data.snapshots import CATEGORIES, Selection, why_empty
from assay.errors import BadInputError, NotFoundError
from assay.workspace import Workspace
from assay_pipelines.annotation.item_filters import FieldFilter, field_conditions
from assay_pipelines.annotation.items import QueueItem, principle_statements
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.question_types.question_type import PAIR
from assay_pipelines.annotation.queue_options import QueueOptions
from assay_pipelines.annotation.queue_state import guideline_history
from assay_pipelines.annotation.recording import DEFAULT_PROJECT, Overlap, Queue, event_id, record_queue, sync_events
from assay_pipelines.annotation.recovery import carry, open_ledger
from assay_pipelines.annotation.votes import QueueVote, by_comparison, queue_votes

LEASE_S = 1800.0
#: Whether the item `i` has been adjudicated, in the operational file.
ADJUDICATED = """EXISTS (SELECT 1 FROM votes a WHERE a.item_id = i.item_id AND a.role <> 'vote' AND a.counts
                          AND a.withdrawn_at IS NULL)"""
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")


@dataclass(frozen=True)
class QueueProgress:
    """Gold checks are not counted but in `checked`. With overlap "all" an item is done when everyone who has voted in
    the queue has voted on it. `votes`: standing votes that say something of the pair."""

    items: int
    done: int
    votes: int
    conflicts: int = 0  #: of `done`: without a majority or an adjudication
    leased: int = 0  #: items that annotators have before them now
    passed: int = 0  #: times an item was passed on
    withdrawn: int = 0  #: votes taken back
    checked: int = 0  #: votes on gold checks
    #: Name -> votes, gold checks included; 0 for annotators who only passed items on. Together `votes` and `checked`.
    annotators: dict[str, int] = field(default_factory=dict)
    passed_by: dict[str, int] = field(default_factory=dict)  #: name -> times, of those who passed an item on

    @property
    def open(self) -> int:
        return self.items - self.done


def create_queue(
    workspace: Workspace,
    name: str,
    items: Sequence[QueueItem],
    *,
    overlap: Overlap = 1,
    gold_checks: float = 0.1,
    run_id: str | None,
    guideline: str = "",
    seed: int = 0,
    lease_seconds: float = LEASE_S,
    project: str | None = None,
) -> Queue:
    """Make the queue, or complete it: the same call again adds what is missing and changes nothing else.

    `gold_checks`: share of what each person is shown that has a known answer, drawn from the gold pool; fewer, or none,
    where the pool is small (`Queue.checks` tells). `project`: None for the default one, or the one it has.
    Raises BadInputError for other settings under a name that is taken,
    for a comparison that the store does not hold, and for new items of a closed queue.
    """
    check_queue(name, overlap, gold_checks, lease_seconds)
    settings = (overlap, float(gold_checks), seed, float(lease_seconds), guideline)
    check_project(project or DEFAULT_PROJECT)
    new = Queue(name, "q-" + ids.digest(name), *settings, project or DEFAULT_PROJECT, False, run_id, 0, 0)
    with open_ledger(workspace) as ledger, ledger.reading() as db:
        row = db.execute("SELECT project FROM queues WHERE name = ?", (name,)).fetchone()
    if row is not None and project not in (None, row["project"]):
        raise BadInputError(f"queue {name!r} is in the project {row['project']!r}: `assay queue move {name} {project}`")
    with open_ledger(workspace) as ledger:
        refuse_deleted(ledger, name)
    record_queue(workspace, new, items)
    with open_ledger(workspace) as ledger:
        carry(workspace, ledger, name)
        return find_queue(ledger, name)


def add_items(workspace: Workspace, name: str, items: Sequence[QueueItem], run_id: str | None) -> int:
    """Add items, and gold checks at the queue's rate, to an open queue; items it has already stay as they are. Returns
    how many were new."""
    with open_ledger(workspace) as ledger:
        sync_events(workspace, ledger)
        queue = find_queue(ledger, name)
        if queue.closed:
            raise BadInputError(f"queue {name!r} is closed: reopen it first")
        added = record_queue(workspace, replace(queue, run_id=run_id or queue.run_id), items)
        carry(workspace, ledger, queue.name)
    return added


def close_queue(workspace: Workspace, name: str) -> None:
    """Hand out no more items; votes on items already handed out are still accepted."""
    _set_closed(workspace, name, True)


def reopen_queue(workspace: Workspace, name: str) -> None:
    _set_closed(workspace, name, False)


def move_queue(workspace: Workspace, name: str, project: str) -> Queue:
    """Into another project: from now on its members see the queue, and those of the other project do not. Raises
    NotFoundError, BadInputError, BusyError while another process holds the store."""
    check_project(project)
    with open_ledger(workspace) as ledger:
        queue = find_queue(ledger, name)
        with workspace.store.unit() as db:
            db.execute("UPDATE queues SET project = ? WHERE queue_id = ?", [project, queue.id])
        with ledger.writing() as sqlite:
            sqlite.execute("UPDATE queues SET project = ? WHERE name = ?", (project, queue.name))
        return find_queue(ledger, queue.name)


def check_project(name: str) -> None:
    """Raises BadInputError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise BadInputError(f"{name!r} is not a project's name: letters, digits, and . _ + - after the first")


def get_queue(workspace: Workspace, name: str) -> Queue:
    """Raises NotFoundError that names those there are."""
    with open_ledger(workspace) as ledger:
        return find_queue(ledger, name)


def list_queues(workspace: Workspace, *, deleted: bool = False) -> list[Queue]:
    """Those of a higher priority first, then the newest. `deleted`: those instead."""
    with open_ledger(workspace) as ledger:
        with ledger.reading() as db:
            rows = db.execute("SELECT name FROM queues WHERE deleted = ? ORDER BY created_at DESC, name", (deleted,))
            names = [row["name"] for row in rows]
        return sorted((find_queue(ledger, name) for name in names), key=lambda queue: -queue.options.priority)


def refuse_deleted(ledger: Ledger, name: str) -> None:
    """Raises BadInputError for the name of a queue that was deleted, whose votes keep it, and for another's title."""
    with ledger.reading() as db:
        row = db.execute(
            """SELECT name, deleted FROM queues
               WHERE (name = ? AND deleted) OR (title = ? AND name <> ? AND NOT deleted)""",
            (name, name, name),
        ).fetchone()
    if row is not None and row["deleted"]:
        raise BadInputError(f"a queue {name!r} was deleted, and its votes keep the name: choose another, or restore it")
    if row is not None:
        raise BadInputError(f"the queue {row['name']!r} is called {name!r} now: choose another name")


def queue_progress(workspace: Workspace, name: str) -> QueueProgress:
    with open_ledger(workspace) as ledger:
        return progress_of(ledger, name)


def progress_of(ledger: Ledger, name: str) -> QueueProgress:
    """The same on a file that is open already."""
    queue = find_queue(ledger, name)
    with ledger.reading() as db:
        names = db.execute(
            """SELECT annotator, sum(v.counts) AS votes, sum(i.is_check AND v.counts) AS checks,
                      sum(NOT v.counts) AS passed
               FROM votes v JOIN items i USING (item_id)
               WHERE i.queue = ? AND v.role = 'vote' AND v.withdrawn_at IS NULL
               GROUP BY annotator ORDER BY annotator""",
            (name,),
        ).fetchall()
        voters = len(names)
        need = queue.overlap if queue.overlap != "all" else max(1, voters)
        items, done, votes, conflicts = db.execute(
            f"""SELECT count(*), coalesce(sum(taken >= ?), 0), coalesce(sum(taken), 0),
                       coalesce(sum(conflict AND NOT {ADJUDICATED}), 0)
                FROM items i WHERE queue = ? AND NOT is_check AND NOT removed""",
            (need, name),
        ).fetchone()
        (leased,) = db.execute(
            """SELECT count(DISTINCT item_id) FROM leases JOIN items USING (item_id)
               WHERE queue = ? AND NOT is_check AND role = 'vote' AND expires_at > ?""",
            (name, time.time()),
        ).fetchone()
        (withdrawn,) = db.execute(
            "SELECT count(*) FROM votes JOIN items USING (item_id) WHERE queue = ? AND withdrawn_at IS NOT NULL",
            (name,),
        ).fetchone()
    return QueueProgress(
        items,
        done,
        votes,
        conflicts,
        leased,
        sum(row["passed"] for row in names),
        withdrawn,
        sum(row["checks"] for row in names),
        {row["annotator"]: row["votes"] for row in names},
        {row["annotator"]: row["passed"] for row in names if row["passed"]},
    )


def collected(workspace: Workspace, name: str) -> Mapping[str, list[QueueVote]]:
    """Comparison id -> its standing votes and adjudications that count, without gold checks."""
    with open_ledger(workspace) as ledger:
        votes = queue_votes(ledger, find_queue(ledger, name).name)
    return by_comparison(vote for vote in votes if vote.check_label is None)


def items_of(
    workspace: Workspace,
    selection: Selection,
    *,
    limit: int | None = None,
    seed: int = 0,
    reason: str = "",
    principles: Sequence[str] = (),
    question: str = PAIR,
    fields: Sequence[FieldFilter] = (),
) -> list[QueueItem]:
    """Comparisons of a selection, and of what `fields` say, as items: a sample of `limit` drawn by hash; what is easy
    for people (objective and of low controversiality, where attributes say so) comes first. Raises BadInputError,
    saying why, where none matches."""
    condition, values = selection.where()
    of_fields, field_values = field_conditions(fields)
    values |= field_values
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""SELECT p.comparison_id FROM pools p LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id
                WHERE {condition} AND {of_fields} ORDER BY sha256($draw || chr(31) || p.comparison_id), p.comparison_id
                {f"LIMIT {int(limit)}" if limit is not None else ""}""",
            {**values, "draw": str(seed)},
        ).fetchall()
        if not rows:
            raise BadInputError(f"nothing matches, the queue would be empty: {why_empty(db, selection)}")
    comparisons = [row[0] for row in rows]
    attributes = load_attributes(workspace, comparisons)
    statements = principle_statements(principles)
    return [
        QueueItem(
            c,
            float(c in attributes and attributes[c].easy_for_people),
            attributes.get(c),
            reason=reason,
            principles=statements,
            question=question,
        )
        for c in comparisons
    ]


def find_queue(ledger: Ledger, name: str) -> Queue:
    """On a file that is open already. Raises NotFoundError."""
    with ledger.reading() as db:
        row = db.execute(
            """SELECT * FROM queues WHERE name = ? OR queue_id = ? OR (title = ? AND NOT deleted)
               ORDER BY name <> ? LIMIT 1""",
            (name, name, name, name),
        ).fetchone()
        if row is None:
            names = [r["name"] for r in db.execute("SELECT name FROM queues ORDER BY created_at DESC LIMIT 10")]
            hint = f"there are: {', '.join(names)}" if names else "there are none yet: assay queue create NAME"
            raise NotFoundError(f"no queue {name!r}; {hint}")
        items, checks = db.execute(
            """SELECT coalesce(sum(NOT is_check), 0), coalesce(sum(is_check), 0) FROM items
               WHERE queue = ? AND NOT removed""",
            (row["name"],),
        ).fetchone()
        latest, *earlier = guideline_history(db, row)
    audience = json.loads(row["asked"]) if row["asked"] else None
    return Queue(
        name=row["name"],
        id=row["queue_id"],
        overlap=row["overlap"] or "all",
        gold_checks=row["gold_checks"],
        seed=row["seed"],
        lease_seconds=row["lease_seconds"],
        guideline=latest.text,
        project=row["project"],
        closed=bool(row["closed"]),
        run_id=row["run_id"],
        items=items,
        checks=checks,
        title=row["title"] or row["name"],
        guideline_version=latest.version,
        first_guideline=row["guideline"] if earlier else None,
        options=QueueOptions.of(row["options"]),
        people=tuple(audience["people"]) if audience else None,
        groups=tuple(audience["groups"]) if audience else None,
        paused=bool(row["paused"]),
        deleted=bool(row["deleted"]),
    )


def _set_closed(workspace: Workspace, name: str, closed: bool) -> None:
    with open_ledger(workspace) as ledger:
        queue = find_queue(ledger, name)
        if queue.closed != closed:
            now = time.time()
            event = "closed" if closed else "reopened"
            with ledger.writing() as db:
                db.execute("UPDATE queues SET closed = ? WHERE name = ?", (closed, queue.name))
                db.execute(
                    "INSERT INTO events (event_id, queue_id, event, at) VALUES (?, ?, ?, ?)",
                    (event_id(queue.id, event, now), queue.id, event, now),
                )
        sync_events(workspace, ledger)


def check_queue(name: str, overlap: Overlap, gold_checks: float, lease_seconds: float) -> None:
    """Raises BadInputError for settings that no queue can have."""
    if not _NAME.fullmatch(name):
        raise BadInputError(f"{name!r} is not a queue name: letters, digits, and . _ + - after the first")
    if overlap != "all" and (not isinstance(overlap, int) or overlap < 1):
        raise BadInputError(
            f"how many people see each item is a number from 1, or 'all', not {overlap!r}", field="overlap"
        )
    if not 0 <= gold_checks <= 0.5:
        raise BadInputError(f"a share from 0 to 0.5, not {gold_checks}", field="gold_checks")
    if not lease_seconds > 0:
        raise BadInputError("must be above 0", field="lease_seconds")
