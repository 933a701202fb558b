"""The annotation service: next item, vote, undo, and durability of every acknowledged vote.

A vote is acknowledged once the operational file and the fsynced journal have it (`outbox`). Leaves out: one's own
earlier answers (`own_answers`), changes of a queue (`queue_edits`), notes on items (`notes`).
"""

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from assay import ids
from assay.annotation.item_answers import ItemAnswer, check_answer
from assay.annotation.queue_changes import VoteContext
from assay.annotation.vote_journal import JournalWriter, check_vote, fold_if_free
from assay.domain import AnnotatorKind, Answer, Judgment, PrincipleAnswer, ShownOrder
from assay.errors import BadInputError, ConflictError, NotFoundError
from assay.system.closable import Closable
from assay.workspace import Workspace
from assay_pipelines.annotation.admission import ANYBODY, Admission, admission_of, decided_now
from assay_pipelines.annotation.assignment import (
    Assignment,
    Ticket,
    block_of,
    conflicts_left,
    drop_lease,
    lease_item,
    load_assignment,
    next_assignment,
    next_conflict,
    requested_assignment,
    shown_in_all,
    slots_left,
    work_left,
)
from assay_pipelines.annotation.items import ShownOpinion, shown_opinions
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.outbox import Outbox, PostingTransaction
from assay_pipelines.annotation.question_types.principles import keep_answers, stored_answers
from assay_pipelines.annotation.question_types.question_type import (
    ANSWERED,
    Submission,
    VoteRecord,
    question_of,
    record_submission,
)
from assay_pipelines.annotation.queue_options import QueueOptions
from assay_pipelines.annotation.queues import QueueProgress, find_queue, progress_of
from assay_pipelines.annotation.recording import sync_events
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.votes import QueueVote, item_votes, recount

UNDONE = "undone by the annotator"
GIVEN_AWAY = "the time for this item ran out, and it was given away: ask for the next one"
CHANGED = "changed by the annotator"
NOT_OPEN = "that item is not open to you: a link opens what you have before you or have answered"
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
class QueueAudience:
    """`name`: of records and addresses. `people`, `groups`: None where every member of the project is asked."""

    name: str
    project: str
    deleted: bool
    people: Sequence[str] | None
    groups: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class AnnotatorStanding:
    """An annotator's standing votes in a queue. `passed`: items passed on. `last`: ticket of the last of both.
    `waiting`: for an adjudicator, the items without a majority that they can have. `expected`: votes and items passed
    on that it comes to when all that is open to this person is done, checks included; None for an adjudicator."""

    votes: int
    passed: int
    last: str | None
    waiting: int | None = None
    admission: Admission = ANYBODY
    expected: int | None = None


class AnnotationService(Closable):
    """Open it once per process, share it between threads, and close it at the end.

    `kind`: "human", or "simulated" for recorded annotators.
    """

    def __init__(self, workspace: Workspace, *, kind: AnnotatorKind = "human") -> None:
        self.workspace = workspace
        self.kind: AnnotatorKind = kind
        self._ledger: Ledger = open_ledger(workspace)
        self._journal = JournalWriter(workspace.journal)
        self.outbox = Outbox(self._ledger, self._journal)
        try:
            self.outbox.deliver_all()
        except BaseException:
            self.close()
            raise

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    def audience(self, queue: str) -> QueueAudience:
        """Whose queue it is. Raises NotFoundError."""
        with self._ledger.reading() as db:
            row = queue_row(db, queue)
            audience = json.loads(row["asked"]) if row["asked"] else None
            people, groups = (audience["people"], audience["groups"]) if audience else (None, None)
            return QueueAudience(row["name"], row["project"], bool(row["deleted"]), people, groups)

    def next(self, queue: str, annotator: str, item: int | None = None, *, others: bool = False) -> Assignment | None:
        """The item that the annotator has before them, or the next one; None when there is none for them now.

        `item`: that one, by its number; with `others` also one that they neither have nor answered. Raises
        ConflictError where they cannot have it.
        """
        with self.outbox.transaction(durable=False) as transaction:
            db = transaction.db
            row = queue_row(db, queue)
            self._register(db, annotator)
            admission = admission_of(db, row, annotator, block_of(row["gold_checks"]))
            if (decision := decided_now(row, annotator, admission)) is not None:
                transaction.change(decision)
            if not admission.works:
                return None
            if item is None:
                return next_assignment(db, row, annotator, qualifying=admission.state == "pending")
            requested = requested_assignment(db, row, annotator, item, others=others and admission.state != "pending")
            if requested is None:
                raise ConflictError(
                    "that item is not open to you: a link opens what you have before you or have answered"
                )
            return requested

    def next_conflict(self, queue: str, adjudicator: str, *, sees_votes: bool = False) -> Assignment | None:
        """The next item whose votes have no majority; its adjudicator did not vote on it."""
        with self._ledger.writing(durable=False) as db:
            row = queue_row(db, queue)
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
            row = queue_row(db, assignment.queue)
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
        guideline: int | None = None,
    ) -> Receipt:
        """Cast a vote; returns when it is durable. `guideline`: the version that was on the screen; None: the one of
        when the item was given out.

        The same submission by the same ticket again is acknowledged again and counted once. Raises BadInputError for
        another one by that ticket, ConflictError when the item's lease ran out and others have taken it or when it is
        not the item of `seal` and `queue`, BackendError when the disk fails: cast the vote again then.
        """
        name = _parse(ticket)
        now = time.time()
        with self.outbox.transaction() as transaction:
            db = transaction.db
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
                context = VoteContext(guideline or assignment.guideline, assignment.suggestion)
                self._withdraw_earlier(transaction, name, annotator, now)
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
                    self._store_answer(transaction, name, answer, vote, context, now)
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
                    self._store(transaction, name, annotator, judgment, vote, assignment.run_id, context, now)
                    receipt = Receipt(judgment.id, vote.answer, False, assignment)
        if receipt.repeated:
            self.outbox.deliver_all()  # its first casting may have failed half-way
        return receipt

    def _withdraw_earlier(self, transaction: PostingTransaction, ticket: Ticket, annotator: str, now: float) -> None:
        """Of somebody who changes an answer: the new one takes the place of the one that stands. Raises ConflictError
        once the queue is closed, even if they have had the item since before."""
        db = transaction.db
        for vote in db.execute(
            "SELECT * FROM votes WHERE item_id = ? AND annotator = ? AND role = ? AND withdrawn_at IS NULL",
            (ticket.item_id, annotator, ticket.role),
        ).fetchall():
            if ticket.role == "vote" and _is_closed(db, ticket.item_id):
                raise ConflictError("the queue is closed: its answers stay as they are")
            withdraw_vote(transaction, vote, CHANGED, now)

    def _store(
        self,
        transaction: PostingTransaction,
        ticket: Ticket,
        annotator: str,
        judgment: Judgment,
        vote: VoteRecord,
        run_id: str | None,
        context: VoteContext,
        now: float,
    ) -> None:
        """Write a new vote, end its lease and post it to the journal."""
        db = transaction.db
        db.execute(
            "INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
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
                context.guideline,
                context.suggestion,
            ),
        )
        if vote.principles:
            keep_answers(db, judgment.id, vote.principles)
        drop_lease(db, ticket.item_id, annotator, ticket.role)
        recount(db, ticket.item_id)
        transaction.post(
            {
                "judgment": judgment.to_dict(),
                "annotator": annotator,
                "kind": self.kind,
                "principles": [asdict(answer) for answer in vote.principles],
                "run_id": run_id,
                "context": context.to_dict(),
                "at": now,
            }
        )

    def _store_answer(
        self,
        transaction: PostingTransaction,
        ticket: Ticket,
        answer: ItemAnswer,
        vote: VoteRecord,
        context: VoteContext,
        now: float,
    ) -> None:
        """As `_store`, of an item that is no pair."""
        db = transaction.db
        db.execute(
            "INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, ?, ?, ?, ?, ?, NULL, ?, ?)",
            (
                *(answer.id, ticket.item_id, answer.annotator, ticket.role, ticket.attempt, vote.answer),
                *(answer.rationale, answer.shown_order, answer.seconds, vote.counts, now),
                *(context.guideline, context.suggestion),
            ),
        )
        db.execute("INSERT INTO vote_labels VALUES (?, ?)", (answer.id, json.dumps(answer.labels)))
        drop_lease(db, ticket.item_id, answer.annotator, ticket.role)
        recount(db, ticket.item_id)
        transaction.post({"answer": answer.to_dict(), "context": context.to_dict(), "at": now})

    def standing(self, queue: str, annotator: str, *, adjudication: bool = False) -> AnnotatorStanding:
        """The annotator's standing votes (or adjudications) in the queue; `undo` would take back the last."""
        with self._ledger.reading() as db:
            row = queue_row(db, queue)
            name, block = row["name"], block_of(row["gold_checks"])
            last = _last_vote(db, name, annotator, adjudication)
            votes, passed = db.execute(
                f"SELECT coalesce(sum(v.counts), 0), coalesce(sum(NOT v.counts), 0) {_STANDING}",
                (name, annotator, adjudication),
            ).fetchone()
            ticket = None if last is None else ticket_of(last)
            if adjudication:
                return AnnotatorStanding(votes, passed, ticket, conflicts_left(db, name, annotator))
            admission = admission_of(db, row, annotator, block)
            first = QueueOptions.of(row["options"]).qualify_checks
            if admission.state == "pending":
                expected = first
            else:
                items, checks = work_left(db, row, annotator)
                rate, seed = row["gold_checks"], row["seed"]
                expected = shown_in_all(rate, seed, annotator, items=items, checks=checks, first=min(first, checks))
        return AnnotatorStanding(votes, passed, ticket, None, admission, max(expected, votes + passed))

    def undo(
        self, queue: str, annotator: str, *, adjudication: bool = False, ticket: str | None = None
    ) -> Assignment | None:
        """Take back the annotator's last standing vote (or adjudication) in the queue and give the item to them again;
        None if there is none. The vote stays in the records, marked as withdrawn. Repeated, it goes further back.

        `ticket`: of the vote that is meant. One that was taken back already stays so and nothing else is, so that a
        caller who got no reply may ask again. Raises ConflictError where it is not the last one any more.
        """
        now = time.time()
        with self.outbox.transaction() as transaction:
            db = transaction.db
            row = queue_row(db, queue)
            last = _last_vote(db, row["name"], annotator, adjudication)
            if ticket is not None and (last is None or ticket_of(last) != ticket):
                assignment = _assigned_again(db, _parse(ticket), annotator)
            elif last is None:
                return None
            else:
                withdraw_vote(transaction, last, UNDONE, now)
                recount(db, last["item_id"])
                assignment = lease_item(db, row, annotator, last["item_id"], last["role"])
        if not transaction.entries:
            self.outbox.deliver_all()  # the first undo may have failed half-way
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
            expires = time.time() + float(queue_row(db, assignment.queue)["lease_seconds"])
            db.execute(
                "UPDATE leases SET expires_at = ? WHERE item_id = ? AND annotator = ? AND role = ?",
                (expires, ticket.item_id, assignment.annotator, ticket.role),
            )
        return expires

    def progress(self, queue: str) -> QueueProgress:
        return progress_of(self._ledger, queue)

    def guideline(self, queue: str) -> str:
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


_STANDING = """FROM votes v JOIN items i USING (item_id)
               WHERE i.queue = ? AND v.annotator = ? AND v.withdrawn_at IS NULL AND (v.role <> 'vote') = ?"""


def _last_vote(db: sqlite3.Connection, queue: str, annotator: str, adjudication: bool) -> sqlite3.Row | None:
    """The vote that `undo` takes back. An item that was passed on, and that others answered since, stays passed."""
    rows = db.execute(f"SELECT v.* {_STANDING} ORDER BY v.at DESC, v.item_id DESC", (queue, annotator, adjudication))
    return next((v for v in rows if v["counts"] or adjudication or slots_left(db, v["item_id"], annotator)), None)


def _is_closed(db: sqlite3.Connection, item_id: int) -> bool:
    (closed,) = db.execute(
        "SELECT closed FROM queues JOIN items ON queue = name WHERE item_id = ?", (item_id,)
    ).fetchone()
    return bool(closed)


def _stored_labels(db: sqlite3.Connection, judgment_id: str) -> dict[str, Any] | None:
    row = db.execute("SELECT labels FROM vote_labels WHERE judgment_id = ?", (judgment_id,)).fetchone()
    return None if row is None else json.loads(row["labels"])


def withdraw_vote(transaction: PostingTransaction, vote: sqlite3.Row, reason: str, now: float) -> None:
    """Mark a vote as taken back, and of an answer all that follows from it."""
    transaction.db.execute("UPDATE votes SET withdrawn_at = ? WHERE judgment_id = ?", (now, vote["judgment_id"]))
    for judgment_id in _judgments_of(transaction.db, vote):
        transaction.post({"withdraw": judgment_id, "reason": reason, "at": now})


def _judgments_of(db: sqlite3.Connection, vote: sqlite3.Row) -> list[str]:
    if (labels := _stored_labels(db, vote["judgment_id"])) is None:
        return [vote["judgment_id"]]
    queue, item, payload = db.execute(
        "SELECT queue, comparison_id, payload FROM items JOIN payloads USING (item_id) WHERE item_id = ?",
        (vote["item_id"],),
    ).fetchone()
    (kind,) = db.execute("SELECT kind FROM annotators WHERE name = ?", (vote["annotator"],)).fetchone()
    question = question_of(json.loads(payload))
    answer_fields = (labels, kind, vote["attempt"], vote["rationale"])
    return ItemAnswer(
        queue, item, question, vote["annotator"], *answer_fields, role=_ORIGINS[vote["role"]]
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


def ticket_of(vote: sqlite3.Row) -> str:
    return str(Ticket(vote["item_id"], vote["attempt"], vote["role"]))


def _parse(ticket: str) -> Ticket:
    if (parsed := Ticket.parse(ticket)) is None:
        raise BadInputError(f"not a ticket: {ticket!r}", field="ticket")
    return parsed


def queue_row(db: sqlite3.Connection, name: str) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute(
        """SELECT * FROM queues WHERE name = :name OR queue_id = :name OR (title = :name AND NOT deleted)
           ORDER BY name <> :name LIMIT 1""",
        {"name": name},
    ).fetchone()
    if row is None:
        raise NotFoundError(f"no queue {name!r}: see `assay queue list`")
    return row
