"""The state of a queue as it follows from its changes: applying one to the operational file, once.

| change | detail |
|---|---|
| `guideline` | `version`, `text` |
| `options` | those of `queue_options` that changed |
| `renamed` | `title`: what people see; the name that the records have stays |
| `paused`, `resumed`, `deleted`, `restored` | |
| `asked` | `people`, `groups`: lists, or both null for everybody |
| `note` | of an `item`: `kind` (flag, comment) and `text` |
| `note_resolved` | `note`, `resolved`, `reply` |
| `admission` | of an `annotator`: `state` (admitted, failed, held) and `reason` |
| `items_removed`, `items_returned` | `items`: comparisons, responses or prompts by id |
| `items_assigned` | `items`, and the `people` who alone are asked; none: everybody |

Leaves out: who may change what (the callers), durability (`outbox`), and what the state does.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from assay.annotation.queue_changes import QueueChange
from assay.workspace import Workspace


@dataclass(frozen=True, slots=True)
class GuidelineVersion:
    """`version`: from 1, the one that the queue was made with. `person`: None where it is not known. `at`: seconds
    since the epoch."""

    version: int
    text: str
    person: str | None
    at: float


def apply_change(db: sqlite3.Connection, change: QueueChange) -> bool:
    """Inside the caller's transaction. A change that the file has already does nothing; whether it was new."""
    fresh = db.execute(
        "INSERT OR IGNORE INTO changes VALUES (?, ?, ?, ?, ?, ?)",
        (change.id, change.queue_id, change.change, json.dumps(dict(change.detail)), change.person, change.at),
    ).rowcount
    if not fresh:
        return False
    queue, detail, person, at = change.queue_id, change.detail, change.person, change.at
    match change.change:
        case "guideline":
            row = (queue, detail["version"], detail["text"], person, at)
            db.execute("INSERT OR IGNORE INTO guidelines VALUES (?, ?, ?, ?, ?)", row)
        case "options":
            (stored,) = db.execute("SELECT options FROM queues WHERE queue_id = ?", (queue,)).fetchone()
            _set(db, queue, "options", json.dumps(json.loads(stored) | dict(detail)))
        case "renamed":
            _set(db, queue, "title", detail["title"])
        case "paused" | "resumed":
            _set(db, queue, "paused", change.change == "paused")
        case "deleted" | "restored":
            _set(db, queue, "deleted", change.change == "deleted")
        case "asked":
            _set(db, queue, "asked", None if detail["people"] is None else json.dumps(dict(detail)))
        case "note":
            db.execute(
                """INSERT OR IGNORE INTO notes (note_id, queue_id, comparison_id, person, kind, text, at)
                   VALUES (?, ?, ?, ?, ?, ?, ?)""",
                (change.id, queue, detail["item"], person, detail["kind"], detail["text"], at),
            )
        case "note_resolved":
            by, when = (person, at) if detail["resolved"] else (None, None)
            db.execute(
                "UPDATE notes SET resolved_by = ?, resolved_at = ?, reply = ? WHERE note_id = ?",
                (by, when, detail["reply"], detail["note"]),
            )
        case "admission":
            admission = (queue, detail["annotator"], detail["state"], detail["reason"], person, at)
            db.execute("INSERT OR REPLACE INTO admissions VALUES (?, ?, ?, ?, ?, ?)", admission)
        case "items_removed" | "items_returned":
            gone = change.change == "items_removed"
            db.executemany(
                """UPDATE items SET removed = ?, done = ? OR (SELECT overlap > 0 AND taken >= overlap FROM queues
                                                              WHERE name = items.queue)
                   WHERE comparison_id = ? AND queue = (SELECT name FROM queues WHERE queue_id = ?)""",
                [(gone, gone, item, queue) for item in detail["items"]],
            )
        case "items_assigned":
            for item in detail["items"]:
                db.execute("DELETE FROM item_people WHERE queue_id = ? AND comparison_id = ?", (queue, item))
                rows = [(queue, item, name) for name in detail["people"]]
                db.executemany("INSERT INTO item_people VALUES (?, ?, ?)", rows)
    return True


def _set(db: sqlite3.Connection, queue_id: str, column: str, value: str | bool | None) -> None:
    db.execute(f"UPDATE queues SET {column} = ? WHERE queue_id = ?", (value, queue_id))


def carry_changes(workspace: Workspace, queue_id: str) -> list[QueueChange]:
    """Those that the store has, in the order they were made."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT change_id, change, detail::VARCHAR, person, epoch(happened_at) FROM queue_changes
               WHERE queue_id = ? ORDER BY happened_at, change_id""",
            [queue_id],
        ).fetchall()
    return [StoredChange(queue_id, row[1], json.loads(row[2]), row[3], row[4], key=row[0]) for row in rows]


@dataclass(frozen=True, slots=True)
class StoredChange(QueueChange):
    """A change whose id is known: it is its `key`."""

    @property
    def id(self) -> str:
        return self.key


def guideline_version(db: sqlite3.Connection, queue_id: str) -> int:
    """The number of the current version."""
    (version,) = db.execute(
        "SELECT coalesce(max(version), 1) FROM guidelines WHERE queue_id = ?", (queue_id,)
    ).fetchone()
    return int(version)


def guideline_history(db: sqlite3.Connection, queue: sqlite3.Row) -> list[GuidelineVersion]:
    """Newest first. `queue`: its row."""
    later = db.execute(
        "SELECT version, text, person, at FROM guidelines WHERE queue_id = ? ORDER BY version DESC",
        (queue["queue_id"],),
    )
    first = GuidelineVersion(1, queue["guideline"], None, queue["created_at"])
    return [*(GuidelineVersion(*row) for row in later), first]


def listed_changes(db: sqlite3.Connection, queue_id: str, kinds: Sequence[str]) -> list[QueueChange]:
    """Of these kinds, newest first."""
    rows = db.execute(
        f"""SELECT change_id, change, detail, person, at FROM changes
            WHERE queue_id = ? AND change IN ({", ".join("?" * len(kinds))}) ORDER BY at DESC, change_id""",
        (queue_id, *kinds),
    )
    return [StoredChange(queue_id, row[1], json.loads(row[2]), row[3], row[4], key=row[0]) for row in rows]
