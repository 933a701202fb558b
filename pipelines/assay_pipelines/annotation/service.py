"""The annotation service: next item, vote, undo, and durability of every acknowledged vote.

A vote is written to the operational file together with an outbox entry, in one transaction; then to the fsynced
journal; then the outbox entry is deleted and the vote acknowledged. A crash in between leaves the entry, which the next
service delivers; the fold counts an entry that is in the journal twice once.
"""

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from assay import ids
from assay.annotation.item_answers import ItemAnswer, check_answer
from assay.annotation.vote_journal import JournalWriter, check_vote, fold_if_free
from assay.domain import AnnotatorKind, Answer, Judgment, PrincipleAnswer, ShownOrder
from assay.errors import BadInputError, ConflictError, NotFoundError
from assay.system.closable import Closable
from assay.workspace import Workspace
from assay_pipelines.annotation.assignment import (
    Assignment,
    Ticket,
    conflicts_left,
    drop_lease,
    lease_item,
    load_assignment,
    next_assignment,
    next_conflict,
    slots_left,
)
from assay_pipelines.annotation.items import ShownOpinion, shown_opinions
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.question_types.principles import keep_answers, stored_answers
from assay_pipelines.annotation.question_types.question_type import (
    ANSWERED,
    Submission,
    VoteRecord,
    question_of,
    record_submission,
)
from assay_pipelines.annotation.queues import QueueProgress, find_queue, progress_of
from assay_pipelines.annotation.recording import sync_events
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.votes import QueueVote, item_votes, recount

UNDONE = "undone by the annotator"
GIVEN_AWAY = "the time for this item ran out, and it was given away: ask for the next one"
_Posted: TypeAlias = tuple[int, dict[str, Any]]  # an entry of the outbox and its number there
_ORIGINS = {"vote": "queue", "blind": "adjudication:blind", "open": "adjudication:open"}


@dataclass(frozen=True, slots=True)
class Receipt:
    """An acknowledged vote: durable in the journal. `repeated`: the same vote had been cast already. `opinions`: of
    judges, which the annotator may see now."""

    judgment_id: str
    answer: Answer | Literal["answered"]
    repeated: bool
    assignment: Assignment

    @property
    def opinions(self) -> tuple[ShownOpinion, ...]:
        return shown_opinions(self.assignment.payload)


@dataclass(frozen=True, slots=True)
class AnnotatorStanding:
    """An annotator's standing votes in a queue. `passed`: items passed on. `last`: ticket of the last of both.
    `waiting`: for an adjudicator, the items without a majority that they can have."""

    votes: int
    passed: int
    last: str | None
    waiting: int | None = None


class AnnotationService(Closable):
    """Open it once per process, share it between threads, and close it at the end.

    `kind`: "human", or "simulated" for recorded annotators.
    """

    def __init__(self, workspace: Workspace, *, kind: AnnotatorKind = "human") -> None:
        self.workspace = workspace
        self.kind: AnnotatorKind = kind
        self._ledger: Ledger = open_ledger(workspace)
        self._journal = JournalWriter(workspace.journal)
        try:
            self._deliver_all()
        except BaseException:
            self.close()
            raise

    def project_of(self, queue: str) -> str:
        """The project whose members see the queue. Raises NotFoundError."""
        with self._ledger.reading() as db:
            project: str = _queue(db, queue)["project"]
        return project

    def next(self, queue: str, annotator: str) -> Assignment | None:
        """The item that the annotator has before them, or the next one; None when there is none for them now."""
        with self._ledger.writing(durable=False) as db:
            row = _queue(db, queue)
            self._register(db, annotator)
            return next_assignment(db, row, annotator)

    def next_conflict(self, queue: str, adjudicator: str, *, sees_votes: bool = False) -> Assignment | None:
        """The next item whose votes have no majority; its adjudicator did not vote on it."""
        with self._ledger.writing(durable=False) as db:
            row = _queue(db, queue)
            self._register(db, adjudicator)
            return next_conflict(db, row, adjudicator, sees_votes=sees_votes)

    def assignment(self, ticket: str, annotator: str) -> Assignment:
        """The item behind a ticket: one that the annotator has before them, its lease run out or not, or has voted on.
        Raises ConflictError when it was given away."""
        with self._ledger.reading() as db:
            assignment = load_assignment(db, _parse(ticket), annotator)
        if assignment is None:
            raise ConflictError(GIVEN_AWAY)
        return assignment

    def reveal(self, assignment: Assignment) -> Assignment:
        """Turn an adjudicator's item into one with sight of the votes; the adjudication is then marked as such."""
        ticket = _parse(assignment.ticket)
        if ticket.role == "vote":
            raise BadInputError("others' votes are for adjudicators")
        if ticket.role == "open":
            return assignment
        with self._ledger.writing(durable=False) as db:
            row = _queue(db, assignment.queue)
            self._claim(db, ticket, assignment.annotator)
            drop_lease(db, ticket.item_id, assignment.annotator, ticket.role)
            return lease_item(db, row, assignment.annotator, ticket.item_id, "open")

    def votes_on(self, assignment: Assignment) -> list[QueueVote]:
        """The annotators' votes on an item. For an adjudicator without sight of them only after their own vote."""
        ticket = _parse(assignment.ticket)
        with self._ledger.reading() as db:
            if ticket.role != "open":
                cast = db.execute(
                    """SELECT 1 FROM votes WHERE item_id = ? AND annotator = ? AND role = ? AND withdrawn_at IS NULL""",
                    (ticket.item_id, assignment.annotator, ticket.role),
                ).fetchone()
                if cast is None:
                    raise BadInputError("others' votes are shown after one's own")
            return item_votes(db, ticket.item_id)

    def principles_with(self, votes: Sequence[QueueVote]) -> Mapping[str, tuple[PrincipleAnswer, ...]]:
        """Judgment id -> the answers on principles given with that vote; votes without any are left out."""
        with self._ledger.reading() as db:
            answers = {vote.judgment_id: stored_answers(db, vote.judgment_id) for vote in votes}
        return {judgment: on_principles for judgment, on_principles in answers.items() if on_principles}

    def cast(
        self,
        ticket: str,
        annotator: str,
        submission: Submission,
        *,
        seal: str | None = None,
        queue: str | None = None,
    ) -> Receipt:
        """Cast a vote; returns when it is durable.

        The same submission by the same ticket again is acknowledged again and counted once. Raises BadInputError for
        another one by that ticket, ConflictError when the item's lease ran out and others have taken it or when it is
        not the item of `seal` and `queue`, BackendError when the disk fails: cast the vote again then.
        """
        name = _parse(ticket)
        now = time.time()
        entry: _Posted | None = None
        with self._ledger.writing() as db:
            self._register(db, annotator)
            assignment = load_assignment(db, name, annotator)
            if assignment is None:
                raise ConflictError(GIVEN_AWAY)
            if (seal not in (None, assignment.seal)) or (queue not in (None, assignment.queue)):
                raise ConflictError(
                    "this vote is about an item that is not here: of another workspace, or rebuilt since"
                )
            vote = record_submission(submission, assignment.payload, assignment.shown_order)
            stored = db.execute(
                "SELECT * FROM votes WHERE item_id = ? AND annotator = ? AND role = ? AND attempt = ?",
                (name.item_id, annotator, name.role, name.attempt),
            ).fetchone()
            if stored is not None:
                if stored["withdrawn_at"] is not None:
                    raise BadInputError("this vote was taken back; the item is to be voted on again", field="ticket")
                same = (stored["answer"], stored["strength"], stored["rationale"]) == (
                    vote.answer,
                    vote.strength,
                    vote.rationale,
                ) and _stored_labels(db, stored["judgment_id"]) == vote.labels
                if not same or set(stored_answers(db, stored["judgment_id"])) != set(vote.principles):
                    raise BadInputError("there is another vote of yours on this item; undo it first", field="ticket")
                receipt = Receipt(stored["judgment_id"], vote.answer, True, assignment)
            else:
                order, started = self._claim(db, name, annotator)
                seconds = submission.seconds if submission.seconds is not None else max(0.0, now - started)
                if vote.labels is not None:
                    answer = ItemAnswer(
                        assignment.queue,
                        assignment.comparison_id,
                        question_of(assignment.payload),
                        annotator,
                        vote.labels,
                        self.kind,
                        name.attempt,
                        vote.rationale,
                        order,
                        seconds,
                        assignment.run_id,
                        _ORIGINS[name.role],
                    )
                    check_answer(answer)
                    entry = self._store_answer(db, name, answer, vote, now)
                    receipt = Receipt(answer.id, vote.answer, False, assignment)
                else:
                    assert vote.answer != ANSWERED
                    judgment = Judgment(
                        assignment.comparison_id,
                        ids.annotator_id(self.kind, annotator),
                        vote.answer,
                        vote.strength,
                        vote.confidence,
                        vote.rationale,
                        order,
                        seconds,
                        f"{_ORIGINS[name.role]}/{assignment.queue}/{name.attempt}",
                    )
                    check_vote(judgment, annotator=annotator, kind=self.kind, principles=vote.principles)
                    entry = self._store(db, name, annotator, judgment, vote, assignment.run_id, now)
                    receipt = Receipt(judgment.id, vote.answer, False, assignment)
        if entry is not None:
            self._deliver(entry)
        else:
            self._deliver_all()  # its first casting may have failed half-way
        return receipt

    def _store(
        self,
        db: sqlite3.Connection,
        ticket: Ticket,
        annotator: str,
        judgment: Judgment,
        vote: VoteRecord,
        run_id: str | None,
        now: float,
    ) -> _Posted:
        """Write a new vote, end its lease and post it to the journal, inside the caller's transaction."""
        db.execute(
            "INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (
                judgment.id,
                ticket.item_id,
                annotator,
                ticket.role,
                ticket.attempt,
                judgment.answer,
                judgment.strength,
                judgment.confidence,
                judgment.rationale,
                judgment.shown_order,
                judgment.seconds,
                vote.counts,
                now,
            ),
        )
        if vote.principles:
            keep_answers(db, judgment.id, vote.principles)
        drop_lease(db, ticket.item_id, annotator, ticket.role)
        recount(db, ticket.item_id)
        return _post(
            db,
            {
                "judgment": judgment.to_dict(),
                "annotator": annotator,
                "kind": self.kind,
                "principles": [asdict(answer) for answer in vote.principles],
                "run_id": run_id,
                "at": now,
            },
        )

    def _store_answer(
        self, db: sqlite3.Connection, ticket: Ticket, answer: ItemAnswer, vote: VoteRecord, now: float
    ) -> _Posted:
        """As `_store`, of an item that is no pair."""
        db.execute(
            "INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, ?, ?, ?, ?, ?, NULL)",
            (
                *(answer.id, ticket.item_id, answer.annotator, ticket.role, ticket.attempt, vote.answer),
                *(answer.rationale, answer.shown_order, answer.seconds, vote.counts, now),
            ),
        )
        db.execute("INSERT INTO vote_labels VALUES (?, ?)", (answer.id, json.dumps(answer.labels)))
        drop_lease(db, ticket.item_id, answer.annotator, ticket.role)
        recount(db, ticket.item_id)
        return _post(db, {"answer": answer.to_dict(), "at": now})

    def standing(self, queue: str, annotator: str, *, adjudication: bool = False) -> AnnotatorStanding:
        """The annotator's standing votes (or adjudications) in the queue; `undo` would take back the last."""
        with self._ledger.reading() as db:
            name = _queue(db, queue)["name"]
            last = _last_vote(db, name, annotator, adjudication)
            votes, passed = db.execute(
                f"SELECT coalesce(sum(v.counts), 0), coalesce(sum(NOT v.counts), 0) {_STANDING}",
                (name, annotator, adjudication),
            ).fetchone()
            waiting = conflicts_left(db, name, annotator) if adjudication else None
        return AnnotatorStanding(votes, passed, None if last is None else _ticket(last), waiting)

    def undo(
        self, queue: str, annotator: str, *, adjudication: bool = False, ticket: str | None = None
    ) -> Assignment | None:
        """Take back the annotator's last standing vote (or adjudication) in the queue and give the item to them again;
        None if there is none. The vote stays in the records, marked as withdrawn. Repeated, it goes further back.

        `ticket`: of the vote that is meant. One that was taken back already stays so and nothing else is, so that a
        caller who got no reply may ask again. Raises ConflictError where it is not the last one any more.
        """
        now = time.time()
        entries: list[_Posted] = []
        with self._ledger.writing() as db:
            row = _queue(db, queue)
            last = _last_vote(db, row["name"], annotator, adjudication)
            if ticket is not None and (last is None or _ticket(last) != ticket):
                assignment = _assigned_again(db, _parse(ticket), annotator)
            elif last is None:
                return None
            else:
                db.execute("UPDATE votes SET withdrawn_at = ? WHERE judgment_id = ?", (now, last["judgment_id"]))
                recount(db, last["item_id"])
                assignment = lease_item(db, row, annotator, last["item_id"], last["role"])
                entries = [
                    _post(db, {"withdraw": judgment_id, "reason": UNDONE, "at": now})
                    for judgment_id in _judgments_of(db, row, last)
                ]
        for entry in entries:
            self._deliver(entry)
        if not entries:
            self._deliver_all()  # the first undo may have failed half-way
        return assignment

    def release(self, assignment: Assignment) -> None:
        """Give the item back undecided; others may have it at once."""
        ticket = _parse(assignment.ticket)
        with self._ledger.writing(durable=False) as db:
            db.execute(
                "DELETE FROM leases WHERE item_id = ? AND annotator = ? AND role = ? AND attempt = ?",
                (ticket.item_id, assignment.annotator, ticket.role, ticket.attempt),
            )

    def renew(self, assignment: Assignment) -> float:
        """Extend the item's lease; returns when it ends. Raises ConflictError when others have taken the item."""
        ticket = _parse(assignment.ticket)
        with self._ledger.writing(durable=False) as db:
            self._claim(db, ticket, assignment.annotator)
            expires = time.time() + float(_queue(db, assignment.queue)["lease_seconds"])
            db.execute(
                "UPDATE leases SET expires_at = ? WHERE item_id = ? AND annotator = ? AND role = ?",
                (expires, ticket.item_id, assignment.annotator, ticket.role),
            )
        return expires

    def progress(self, queue: str) -> QueueProgress:
        return progress_of(self._ledger, queue)

    def guideline(self, queue: str) -> str:
        """The queue's guideline."""
        return find_queue(self._ledger, queue).guideline

    def fold(self) -> bool:
        """Fold the votes into the store if no other process holds it now; whether that was so."""
        if fold_if_free(self.workspace) is None:
            return False
        sync_events(self.workspace, self._ledger)
        return True

    def close(self) -> None:
        self._journal.close()
        self._ledger.close()

    def _claim(self, db: sqlite3.Connection, ticket: Ticket, annotator: str) -> tuple[ShownOrder, float]:
        """The order shown and the start of the annotator's lease, made sure of if it has run out."""
        lease = db.execute(
            "SELECT * FROM leases WHERE item_id = ? AND annotator = ? AND role = ?",
            (ticket.item_id, annotator, ticket.role),
        ).fetchone()
        if lease is None or lease["attempt"] != ticket.attempt:
            raise ConflictError(GIVEN_AWAY)
        if lease["expires_at"] <= time.time():
            reassigned = (
                not slots_left(db, ticket.item_id, annotator)
                if ticket.role == "vote"
                else db.execute(
                    """SELECT 1 FROM votes WHERE item_id = :item AND role <> 'vote' AND withdrawn_at IS NULL
                       UNION ALL SELECT 1 FROM leases WHERE item_id = :item AND role <> 'vote' AND annotator <> :who
                       AND expires_at > :now""",
                    {"item": ticket.item_id, "who": annotator, "now": time.time()},
                ).fetchone()
            )
            if reassigned:
                raise ConflictError("the time for this item ran out, and somebody else has it: ask for the next one")
        return lease["shown_order"], lease["leased_at"]

    def _register(self, db: sqlite3.Connection, annotator: str) -> None:
        if not annotator.strip() or len(annotator) > 100 or not annotator.isprintable():
            raise BadInputError("an annotator's name is 1 to 100 printable characters", field="annotator")
        db.execute("INSERT OR IGNORE INTO annotators (name, kind) VALUES (?, ?)", (annotator, self.kind))
        (kind,) = db.execute("SELECT kind FROM annotators WHERE name = ?", (annotator,)).fetchone()
        if kind != self.kind:
            raise BadInputError(f"{annotator!r} is known as {kind}, not {self.kind}", field="annotator")

    def _deliver_all(self) -> None:
        with self._ledger.reading() as db:
            waiting = [(row["id"], json.loads(row["entry"])) for row in db.execute("SELECT * FROM outbox ORDER BY id")]
        for entry in waiting:
            self._deliver(entry)

    def _deliver(self, posted: _Posted) -> None:
        number, entry = posted
        at = datetime.fromtimestamp(entry["at"], UTC)
        if "withdraw" in entry:
            self._journal.withdraw(entry["withdraw"], entry["reason"], at=at)
        elif "answer" in entry:
            self._journal.append_answer(ItemAnswer(**entry["answer"]), at=at)
        else:
            self._journal.append(
                Judgment(**entry["judgment"]),
                annotator=entry["annotator"],
                kind=entry["kind"],
                run_id=entry["run_id"],
                at=at,
                principles=[PrincipleAnswer(**answer) for answer in entry.get("principles", ())],
            )
        with self._ledger.writing(durable=False) as db:
            db.execute("DELETE FROM outbox WHERE id = ?", (number,))


_STANDING = """FROM votes v JOIN items i USING (item_id)
               WHERE i.queue = ? AND v.annotator = ? AND v.withdrawn_at IS NULL AND (v.role <> 'vote') = ?"""


def _last_vote(db: sqlite3.Connection, queue: str, annotator: str, adjudication: bool) -> sqlite3.Row | None:
    """The vote that `undo` takes back. An item that was passed on, and that others answered since, stays passed."""
    rows = db.execute(f"SELECT v.* {_STANDING} ORDER BY v.at DESC, v.item_id DESC", (queue, annotator, adjudication))
    return next((v for v in rows if v["counts"] or adjudication or slots_left(db, v["item_id"], annotator)), None)


def _stored_labels(db: sqlite3.Connection, judgment_id: str) -> dict[str, Any] | None:
    row = db.execute("SELECT labels FROM vote_labels WHERE judgment_id = ?", (judgment_id,)).fetchone()
    return None if row is None else json.loads(row["labels"])


def _judgments_of(db: sqlite3.Connection, queue: sqlite3.Row, vote: sqlite3.Row) -> list[str]:
    """What a vote's taking back takes back: itself, and of an answer all that follows from it."""
    if (labels := _stored_labels(db, vote["judgment_id"])) is None:
        return [vote["judgment_id"]]
    item, payload = db.execute(
        "SELECT comparison_id, payload FROM items JOIN payloads USING (item_id) WHERE item_id = ?", (vote["item_id"],)
    ).fetchone()
    (kind,) = db.execute("SELECT kind FROM annotators WHERE name = ?", (vote["annotator"],)).fetchone()
    question = question_of(json.loads(payload))
    answer_fields = (labels, kind, vote["attempt"], vote["rationale"])
    return ItemAnswer(
        queue["name"], item, question, vote["annotator"], *answer_fields, role=_ORIGINS[vote["role"]]
    ).judgment_ids()


def _assigned_again(db: sqlite3.Connection, ticket: Ticket, annotator: str) -> Assignment | None:
    """The next attempt at the item of a vote that was taken back before. Raises ConflictError for one that stands."""
    withdrawn = db.execute(
        """SELECT 1 FROM votes WHERE item_id = ? AND annotator = ? AND role = ? AND attempt = ?
           AND withdrawn_at IS NOT NULL""",
        (ticket.item_id, annotator, ticket.role, ticket.attempt),
    ).fetchone()
    if withdrawn is None:
        raise ConflictError("that is not your last vote any more: look at it before you undo")
    return load_assignment(db, Ticket(ticket.item_id, ticket.attempt + 1, ticket.role), annotator)


def _ticket(vote: sqlite3.Row) -> str:
    return str(Ticket(vote["item_id"], vote["attempt"], vote["role"]))


def _post(db: sqlite3.Connection, entry: dict[str, Any]) -> _Posted:
    return int(db.execute("INSERT INTO outbox (entry) VALUES (?)", (json.dumps(entry),)).lastrowid or 0), entry


def _parse(ticket: str) -> Ticket:
    if (parsed := Ticket.parse(ticket)) is None:
        raise BadInputError(f"not a ticket: {ticket!r}", field="ticket")
    return parsed


def _queue(db: sqlite3.Connection, name: str) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute("SELECT * FROM queues WHERE name = ? OR queue_id = ?", (name, name)).fetchone()
    if row is None:
        raise NotFoundError(f"no queue {name!r}: see `assay queue list`")
    return row
