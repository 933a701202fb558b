"""Editing a queue that exists: guideline, options, name, pause, deletion, who is asked, who is admitted, its items.

Each edit is one durable change (`outbox`) of the table in `queue_state`. Leaves out: closing and reopening, moving to
another project (`queues`), who may edit (the callers).
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from assay.annotation.queue_changes import QueueChange
from assay.errors import BadInputError, ConflictError, NotFoundError
from assay_pipelines.annotation.admission import AdmissionState
from assay_pipelines.annotation.queue_options import QueueOptions
from assay_pipelines.annotation.queue_state import GuidelineVersion, guideline_history
from assay_pipelines.annotation.service import AnnotationService, queue_row

LONGEST_GUIDELINE = 20_000
LONGEST_TITLE = 100


@contextmanager
def _edited(service: AnnotationService, queue: str, person: str) -> Iterator["_Edit"]:
    with service.outbox.transaction() as transaction:
        row = queue_row(transaction.db, queue)
        edit = _Edit(transaction.db, row)
        yield edit
        for change, detail in edit.changes:
            transaction.change(QueueChange(row["queue_id"], change, detail, person, time.time()))


class _Edit:
    """`changes`: made when the block ends."""

    def __init__(self, db: sqlite3.Connection, row: sqlite3.Row) -> None:
        self.db, self.row = db, row
        self.changes: list[tuple[str, dict[str, Any]]] = []

    def add(self, change: str, **detail: Any) -> None:
        self.changes.append((change, detail))


def edit_guideline(service: AnnotationService, queue: str, text: str, person: str, *, version: int) -> GuidelineVersion:
    """A new version of the guideline, which annotators see with their next item. `version`: the one that was edited.

    Raises ConflictError when there is a newer one by now: nothing is stored then.
    """
    if len(text) > LONGEST_GUIDELINE:
        raise BadInputError(f"a guideline has at most {LONGEST_GUIDELINE} characters", field="guideline")
    with _edited(service, queue, person) as edit:
        current = guideline_history(edit.db, edit.row)[0]
        if text == current.text:
            return current
        if version != current.version:
            raise ConflictError(f"{current.person or 'somebody'} has changed the guideline meanwhile")
        edit.add("guideline", version=current.version + 1, text=text)
    return read_guideline(service, queue)[0]


def read_guideline(service: AnnotationService, queue: str) -> list[GuidelineVersion]:
    """All versions, newest first."""
    with service.ledger.reading() as db:
        return guideline_history(db, queue_row(db, queue))


def edit_options(service: AnnotationService, queue: str, changed: Mapping[str, Any], person: str) -> None:
    """Set some of `QueueOptions`. Raises BadInputError, for a qualification of more checks than there are too."""
    with _edited(service, queue, person) as edit:
        before = QueueOptions.of(edit.row["options"]).to_dict()
        options = QueueOptions(**{**before, **changed})
        (checks,) = edit.db.execute(
            "SELECT count(*) FROM items WHERE queue = ? AND is_check AND NOT removed", (edit.row["name"],)
        ).fetchone()
        if options.qualify_checks > checks:
            raise BadInputError(
                f"the queue has {checks} items with a known answer: nobody can be asked {options.qualify_checks} first"
            )
        differing = {name: value for name, value in options.to_dict().items() if value != before[name]}
        if differing:
            edit.add("options", **differing)


def rename_queue(service: AnnotationService, queue: str, title: str, person: str) -> None:
    """What people see from now on. Records and addresses keep the name it was made with. Raises BadInputError for a
    name that another queue has or had."""
    title = " ".join(title.split())
    if not title or len(title) > LONGEST_TITLE or not title.isprintable():
        raise BadInputError(f"a queue's name has 1 to {LONGEST_TITLE} printable characters", field="title")
    with _edited(service, queue, person) as edit:
        if edit.db.execute(_TAKEN, {"title": title, "id": edit.row["queue_id"]}).fetchone() is not None:
            raise BadInputError(f"there is another queue {title!r}, or was: its votes keep the name", field="title")
        if title != (edit.row["title"] or edit.row["name"]):
            edit.add("renamed", title=title)


_TAKEN = "SELECT 1 FROM queues WHERE queue_id <> :id AND (name = :title OR (title = :title AND NOT deleted))"


def turn_queue(
    service: AnnotationService, queue: str, change: Literal["paused", "resumed", "deleted", "restored"], person: str
) -> None:
    """Paused: it hands out nothing new; what people have before them they may finish. Deleted: nobody sees it any more;
    its votes stay in the store and in exports, and its name stays theirs. Raises BadInputError for restoring one whose
    name on the page another has taken since."""
    with _edited(service, queue, person) as edit:
        column, value = ("deleted" if change in ("deleted", "restored") else "paused"), change in ("deleted", "paused")
        title = {"title": edit.row["title"], "id": edit.row["queue_id"]}
        if change == "restored" and edit.db.execute(_TAKEN, title).fetchone() is not None:
            raise BadInputError(f"another queue is called {edit.row['title']!r} now: rename that one first")
        if bool(edit.row[column]) != value:
            edit.add(change)


def ask_people(
    service: AnnotationService, queue: str, people: Sequence[str] | None, groups: Sequence[str] | None, person: str
) -> None:
    """These alone are asked; None for both: every member of the project."""
    with _edited(service, queue, person) as edit:
        everybody = people is None and groups is None
        edit.add("asked", people=None if everybody else list(people or ()), groups=list(groups or ()))


def admit(service: AnnotationService, queue: str, annotator: str, state: AdmissionState, person: str) -> None:
    """By hand, whatever the checks say: "admitted", or "held" back."""
    with _edited(service, queue, person) as edit:
        words = f"{'admitted' if state == 'admitted' else 'held back'} by {person}"
        edit.add("admission", annotator=annotator, state=state, reason=words)


def change_items(
    service: AnnotationService,
    queue: str,
    change: Literal["items_removed", "items_returned", "items_assigned"],
    items: Sequence[int],
    person: str,
    *,
    people: Sequence[str] = (),
) -> list[str]:
    """Ask nobody any more, ask again, or ask these people alone (none: everybody); votes stay. `items`: by number; the
    ids of what they ask about are returned. Raises NotFoundError for one that the queue does not have."""
    with _edited(service, queue, person) as edit:
        ids = item_ids(edit.db, edit.row["name"], items)
        detail: dict[str, Any] = {"people": list(people)} if change == "items_assigned" else {}
        edit.add(change, items=ids, **detail)
    return ids


def item_ids(db: sqlite3.Connection, queue: str, items: Sequence[int]) -> list[str]:
    """What the items ask about. Raises NotFoundError."""
    rows = db.execute("SELECT item_id, comparison_id FROM items WHERE queue = ?", (queue,))
    ids = {row["item_id"]: row["comparison_id"] for row in rows}
    if missing := [item for item in items if item not in ids]:
        raise NotFoundError(f"the queue has no item {missing[0]}")
    return [ids[item] for item in dict.fromkeys(items)]
