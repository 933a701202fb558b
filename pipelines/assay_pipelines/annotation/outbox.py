"""Transactions of the operational file whose entries are in the journal before they are acknowledged.

What is posted in a transaction is committed with it, then appended to the fsynced journal, then taken out. A crash in
between leaves the entry, which the next service delivers; the fold counts an entry that is in the journal twice once.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from assay.annotation.item_answers import ItemAnswer
from assay.annotation.queue_changes import QueueChange, VoteContext
from assay.annotation.vote_journal import JournalWriter
from assay.domain import Judgment, PrincipleAnswer
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.queue_state import apply_change


@dataclass
class PostingTransaction:
    """`db`: a transaction of the file. `entries`: (number in the outbox, entry) of what was posted in it."""

    db: sqlite3.Connection
    entries: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def post(self, entry: dict[str, Any]) -> None:
        number = self.db.execute("INSERT INTO outbox (entry) VALUES (?)", (json.dumps(entry),)).lastrowid
        self.entries.append((int(number or 0), entry))

    def change(self, change: QueueChange) -> bool:
        """Apply it and post it; whether it was new."""
        if not apply_change(self.db, change):
            return False
        self.post({"change": change.to_dict(), "at": change.at})
        return True


class Outbox:
    """Threads may share it."""

    def __init__(self, ledger: Ledger, journal: JournalWriter) -> None:
        self._ledger, self._journal = ledger, journal

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[PostingTransaction]:
        """What was posted is in the journal when this ends. Raises BackendError when the disk fails: do it again then,
        and `deliver_all` where it turns out to be in the file already."""
        with self._ledger.writing(durable=durable) as db:
            transaction = PostingTransaction(db)
            yield transaction
        for number, entry in transaction.entries:
            self._deliver(number, entry)

    def deliver_all(self) -> None:
        with self._ledger.reading() as db:
            waiting = [(row["id"], json.loads(row["entry"])) for row in db.execute("SELECT * FROM outbox ORDER BY id")]
        for number, entry in waiting:
            self._deliver(number, entry)

    def _deliver(self, number: int, entry: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(entry["at"], UTC)
        context = VoteContext(**entry["context"]) if entry.get("context") else None
        if "withdraw" in entry:
            self._journal.withdraw(entry["withdraw"], entry["reason"], at=at)
        elif "change" in entry:
            self._journal.append_change(QueueChange(**entry["change"]))
        elif "answer" in entry:
            self._journal.append_answer(ItemAnswer(**entry["answer"]), at=at, context=context)
        else:
            self._journal.append(
                Judgment(**entry["judgment"]),
                annotator=entry["annotator"],
                kind=entry["kind"],
                run_id=entry["run_id"],
                at=at,
                principles=[PrincipleAnswer(**answer) for answer in entry.get("principles", ())],
                context=context,
            )
        with self._ledger.writing(durable=False) as db:
            db.execute("DELETE FROM outbox WHERE id = ?", (number,))
