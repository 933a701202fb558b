"""The desk at which people work: next item, vote, skip, undo, and what was durable when it was acknowledged.

Covers: casting and taking back votes by any number of people, threads and processes at once, while another process may
hold the store. Leaves out: who gets which item (`assignment`), drawing (`drawing`; the web), what votes come to.

A vote is written to the operational file together with an outbox entry, in one transaction; then to the fsynced
journal; then the outbox entry goes, and the vote is acknowledged. A crash in between leaves the entry, and whoever
opens the desk next delivers it: the journal may then hold it twice, which the fold counts once. So nobody is asked
again for what they have said, and nothing counts twice.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from assay import ids
from assay.annotation.vote_journal import JournalWriter, check_vote, fold_if_free
from assay.domain import AnnotatorKind, Answer, Judgment, PrincipleAnswer, ShownOrder
from assay.errors import BadInputError, ConflictError, NotFoundError
from assay.workspace import Workspace
from assay_pipelines.annotation.assignment import (
    Assignment,
    Ticket,
    assignment_of,
    conflicts_left,
    drop_lease,
    lease_item,
    next_assignment,
    next_conflict,
    slots_left,
)
from assay_pipelines.annotation.items import Choice, ShownOpinion, shown_opinions
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.principle_votes import (
    PlacedAnswer,
    answers_with,
    checked,
    keep_answers,
    kept_answers,
)
from assay_pipelines.annotation.queues import Progress, find_queue, progress_of
from assay_pipelines.annotation.recording import sync_events
from assay_pipelines.annotation.recovery import note_annotator, open_ledger, recount
from assay_pipelines.annotation.votes import SKIP_REASONS, QueueVote, item_votes, outcome

UNDONE = "undone by the annotator"
GIVEN_AWAY = "the time for this item ran out, and it was given away: ask for the next one"
_Posted: TypeAlias = tuple[int, dict[str, Any]]  # an entry of the outbox and its number there
_ORIGINS = {"vote": "queue", "blind": "adjudication:blind", "open": "adjudication:open"}
_CHOICES: Mapping[tuple[str, str], Answer] = {
    ("first", "AB"): "A",
    ("first", "BA"): "B",
    ("second", "AB"): "B",
    ("second", "BA"): "A",
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """An acknowledged vote: durable in the journal. `repeated`: the same vote had been cast already. `opinions`: what
    judges said, which a person may see now."""

    judgment_id: str
    answer: Answer
    repeated: bool
    opinions: tuple[ShownOpinion, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """One person's standing votes in a queue: their number, and the ticket of the last, which may be of one of the
    `passed`: items that they passed on. `waiting`: for an adjudicator, how many items without a majority they can
    have."""

    votes: int
    passed: int
    last: str | None
    waiting: int | None = None


class Desk:
    """Open it once per process and share it between threads; close it at the end.

    `kind`: "human", or "simulated" for recorded people who play a part.
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

    def next(self, queue: str, annotator: str) -> Assignment | None:
        """The item that the annotator has before them, or the next one; None when there is none for them now."""
        with self._ledger.writing(durable=False) as db:
            row = _queue(db, queue)
            self._known(db, annotator)
            return next_assignment(db, row, annotator)

    def next_conflict(self, queue: str, adjudicator: str, *, sees_votes: bool = False) -> Assignment | None:
        """The next item whose votes have no majority; its adjudicator is somebody who did not vote on it."""
        with self._ledger.writing(durable=False) as db:
            row = _queue(db, queue)
            self._known(db, adjudicator)
            return next_conflict(db, row, adjudicator, sees_votes=sees_votes)

    def given(self, ticket: str, annotator: str) -> Assignment:
        """The item behind a ticket, for callers that kept only that: one that the annotator has before them, run out or
        not, or has voted on. Raises ConflictError when it was given away."""
        with self._ledger.reading() as db:
            found = assignment_of(db, _parse(ticket), annotator)
        if found is None:
            raise ConflictError(GIVEN_AWAY)
        return found

    def reveal(self, given: Assignment) -> Assignment:
        """Turn an adjudicator's item into one with sight of the votes; the adjudication is then marked as such."""
        ticket = _parse(given.ticket)
        if ticket.role == "vote":
            raise BadInputError("others' votes are for adjudicators")
        if ticket.role == "open":
            return given
        with self._ledger.writing(durable=False) as db:
            row = _queue(db, given.queue)
            self._claim(db, ticket, given.annotator)
            drop_lease(db, ticket.item_id, given.annotator, ticket.role)
            return lease_item(db, row, given.annotator, ticket.item_id, "open")

    def votes_on(self, given: Assignment) -> list[QueueVote]:
        """The annotators' votes on an item. For an adjudicator without sight of them only after their own vote."""
        ticket = _parse(given.ticket)
        with self._ledger.reading() as db:
            if ticket.role != "open":
                own = db.execute(
                    """SELECT 1 FROM votes WHERE item_id = ? AND annotator = ? AND role = ? AND withdrawn_at IS NULL""",
                    (ticket.item_id, given.annotator, ticket.role),
                ).fetchone()
                if own is None:
                    raise BadInputError("others' votes are shown after one's own")
            return item_votes(db, ticket.item_id)

    def principles_with(self, votes: Sequence[QueueVote]) -> Mapping[str, tuple[PrincipleAnswer, ...]]:
        """Judgment id -> what was said of principles with that vote, of those votes that said something."""
        with self._ledger.reading() as db:
            return answers_with(db, [vote.judgment_id for vote in votes])

    def vote(
        self,
        given: Assignment,
        choice: Choice,
        *,
        strength: int | None = None,
        confidence: float | None = None,
        rationale: str | None = None,
        seconds: float | None = None,
        principles: Sequence[PlacedAnswer] = (),
    ) -> Receipt:
        """Returns when the vote is durable. `choice` names the response by its place on the screen. `principles`:
        answers on some or all of the item's.

        The same vote by the same ticket again is acknowledged again and counted once. Raises BadInputError for another
        vote by that ticket, ConflictError when the time for the item ran out and others have taken its place,
        BackendError when the disk fails: the vote is then not acknowledged, and casting it again is right.
        """
        answer: Answer
        if choice in ("first", "second"):
            answer = _CHOICES[choice, given.shown_order]
        elif choice in ("tie", "both_good", "both_bad"):
            answer = choice
        else:
            raise BadInputError(f"unknown choice {choice!r}; one of first, second, tie, both_good, both_bad")
        return self.cast(
            given.ticket,
            given.annotator,
            answer,
            strength=strength,
            confidence=confidence,
            rationale=rationale,
            seconds=seconds,
            principles=[said.canonical(given.shown_order) for said in principles],
        )

    def skip(
        self,
        given: Assignment,
        reason: str,
        *,
        text: str = "",
        seconds: float | None = None,
        principles: Sequence[PlacedAnswer] = (),
    ) -> Receipt:
        """Give no preference, for one of SKIP_REASONS. "cannot_decide" and "broken" count as votes, and may answer on
        principles; the others pass the item on to somebody else."""
        if reason not in SKIP_REASONS:
            raise BadInputError(f"unknown reason {reason!r}; one of {', '.join(SKIP_REASONS)}", field="reason")
        rationale = f"{reason}: {text}" if text else reason
        said = [answer.canonical(given.shown_order) for answer in principles]
        return self.cast(given.ticket, given.annotator, "skip", rationale=rationale, seconds=seconds, principles=said)

    def cast(
        self,
        ticket: str,
        annotator: str,
        answer: Answer,
        *,
        strength: int | None = None,
        confidence: float | None = None,
        rationale: str | None = None,
        seconds: float | None = None,
        principles: Sequence[PrincipleAnswer] = (),
    ) -> Receipt:
        """`vote` and `skip` in canonical terms, for callers that kept only the ticket."""
        name = _parse(ticket)
        now = time.time()
        entry: _Posted | None = None
        with self._ledger.writing() as db:
            item = db.execute(
                """SELECT i.queue, i.comparison_id, p.payload, q.run_id
                   FROM items i JOIN payloads p USING (item_id) JOIN queues q ON q.name = i.queue WHERE item_id = ?""",
                (name.item_id,),
            ).fetchone()
            if item is None:
                raise BadInputError(f"no such ticket: {ticket!r}", field="ticket")
            self._known(db, annotator)
            origin = f"{_ORIGINS[name.role]}/{item['queue']}/{name.attempt}"
            author = ids.annotator_id(self.kind, annotator)
            opinions = shown_opinions(item["payload"])
            counts = outcome(answer, rationale) is not None
            if principles and not counts:
                raise BadInputError("an item that is passed on has no answers on principles", field="principles")
            said = checked(item["payload"], principles)
            there = db.execute(
                "SELECT * FROM votes WHERE item_id = ? AND annotator = ? AND role = ? AND attempt = ?",
                (name.item_id, annotator, name.role, name.attempt),
            ).fetchone()
            if there is not None:
                if there["withdrawn_at"] is not None:
                    raise BadInputError("this vote was taken back; the item is to be voted on again", field="ticket")
                same = (there["answer"], there["strength"], there["rationale"]) == (answer, strength, rationale)
                if not same or kept_answers(db, there["judgment_id"]) != frozenset(said):
                    raise BadInputError("there is another vote of yours on this item; undo it first", field="ticket")
                receipt = Receipt(there["judgment_id"], answer, True, opinions)
            else:
                order, started = self._claim(db, name, annotator)
                spent = seconds if seconds is not None else max(0.0, now - started)
                judgment = Judgment(
                    item["comparison_id"], author, answer, strength, confidence, rationale, order, spent, origin
                )
                check_vote(judgment, annotator=annotator, kind=self.kind, principles=said)
                db.execute(
                    "INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                    (
                        judgment.id,
                        name.item_id,
                        annotator,
                        name.role,
                        name.attempt,
                        answer,
                        strength,
                        confidence,
                        rationale,
                        order,
                        spent,
                        counts,
                        now,
                    ),
                )
                keep_answers(db, judgment.id, said)
                drop_lease(db, name.item_id, annotator, name.role)
                recount(db, name.item_id)
                vote = {"judgment": judgment.to_dict(), "annotator": annotator, "kind": self.kind}
                told = {"principles": [asdict(one) for one in said], "run_id": item["run_id"], "at": now}
                entry = _post(db, vote | told)
                receipt = Receipt(judgment.id, answer, False, opinions)
        if entry is not None:
            self._deliver(entry)
        else:
            self._deliver_all()  # its first casting may have failed half-way
        return receipt

    def standing(self, queue: str, annotator: str, *, adjudication: bool = False) -> Standing:
        """What the annotator has in the queue: how many standing votes (or adjudications), items passed on, and the
        ticket of the last of both, which is what `undo` would take back."""
        with self._ledger.reading() as db:
            name = _queue(db, queue)["name"]
            last = _last_vote(db, name, annotator, adjudication)
            votes, passed = db.execute(
                f"SELECT coalesce(sum(v.counts), 0), coalesce(sum(NOT v.counts), 0) {_STANDING}",
                (name, annotator, adjudication),
            ).fetchone()
            waiting = conflicts_left(db, name, annotator) if adjudication else None
        return Standing(votes, passed, None if last is None else _ticket(last), waiting)

    def undo(
        self, queue: str, annotator: str, *, adjudication: bool = False, ticket: str | None = None
    ) -> Assignment | None:
        """Take back the annotator's last standing vote (or adjudication) in the queue and give the item to them again;
        None if there is none. The vote stays in the records, marked as withdrawn. Repeated, it goes further back.

        `ticket`: of the vote that is meant. One that was taken back already stays so and nothing else is, so that a
        caller who got no reply may ask again. Raises ConflictError where it is not the last one any more.
        """
        now = time.time()
        entry: _Posted | None = None
        with self._ledger.writing() as db:
            row = _queue(db, queue)
            last = _last_vote(db, row["name"], annotator, adjudication)
            if ticket is not None and (last is None or _ticket(last) != ticket):
                given = _given_again(db, _parse(ticket), annotator)
            elif last is None:
                return None
            else:
                db.execute("UPDATE votes SET withdrawn_at = ? WHERE judgment_id = ?", (now, last["judgment_id"]))
                recount(db, last["item_id"])
                given = lease_item(db, row, annotator, last["item_id"], last["role"])
                entry = _post(db, {"withdraw": last["judgment_id"], "reason": UNDONE, "at": now})
        if entry is not None:
            self._deliver(entry)
        else:
            self._deliver_all()  # the first undo may have failed half-way
        return given

    def release(self, given: Assignment) -> None:
        """Give the item back undecided: somebody else may have it at once."""
        ticket = _parse(given.ticket)
        with self._ledger.writing(durable=False) as db:
            db.execute(
                "DELETE FROM leases WHERE item_id = ? AND annotator = ? AND role = ? AND attempt = ?",
                (ticket.item_id, given.annotator, ticket.role, ticket.attempt),
            )

    def renew(self, given: Assignment) -> float:
        """Say that the person is still at the item; returns when its lease now ends. Raises ConflictError when it ran
        out and others have taken its place."""
        ticket = _parse(given.ticket)
        with self._ledger.writing(durable=False) as db:
            self._claim(db, ticket, given.annotator)
            expires = time.time() + float(_queue(db, given.queue)["lease_seconds"])
            db.execute(
                "UPDATE leases SET expires_at = ? WHERE item_id = ? AND annotator = ? AND role = ?",
                (expires, ticket.item_id, given.annotator, ticket.role),
            )
        return expires

    def progress(self, queue: str) -> Progress:
        return progress_of(self._ledger, queue)

    def guideline(self, queue: str) -> str:
        """Of the queue as a whole."""
        return find_queue(self._ledger, queue).guideline

    def fold(self) -> bool:
        """Put what was voted into the store if nobody holds it at this moment; whether that was so."""
        if fold_if_free(self.workspace) is None:
            return False
        sync_events(self.workspace, self._ledger)
        return True

    def close(self) -> None:
        self._journal.close()
        self._ledger.close()

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claim(self, db: sqlite3.Connection, ticket: Ticket, annotator: str) -> tuple[ShownOrder, float]:
        """The order shown and the start of the annotator's lease, made sure of if it has run out."""
        lease = db.execute(
            "SELECT * FROM leases WHERE item_id = ? AND annotator = ? AND role = ?",
            (ticket.item_id, annotator, ticket.role),
        ).fetchone()
        if lease is None or lease["attempt"] != ticket.attempt:
            raise ConflictError(GIVEN_AWAY)
        if lease["expires_at"] <= time.time():
            taken = (
                not slots_left(db, ticket.item_id, annotator)
                if ticket.role == "vote"
                else db.execute(
                    """SELECT 1 FROM votes WHERE item_id = :item AND role <> 'vote' AND withdrawn_at IS NULL
                       UNION ALL SELECT 1 FROM leases WHERE item_id = :item AND role <> 'vote' AND annotator <> :who
                       AND expires_at > :now""",
                    {"item": ticket.item_id, "who": annotator, "now": time.time()},
                ).fetchone()
            )
            if taken:
                raise ConflictError("the time for this item ran out, and somebody else has it: ask for the next one")
        return lease["shown_order"], lease["leased_at"]

    def _known(self, db: sqlite3.Connection, annotator: str) -> None:
        if not annotator.strip() or len(annotator) > 100 or not annotator.isprintable():
            raise BadInputError("an annotator's name is 1 to 100 printable characters", field="annotator")
        note_annotator(db, annotator, self.kind)
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
        else:
            self._journal.append(
                Judgment(**entry["judgment"]),
                annotator=entry["annotator"],
                kind=entry["kind"],
                run_id=entry["run_id"],
                at=at,
                principles=[PrincipleAnswer(**said) for said in entry.get("principles", ())],
            )
        with self._ledger.writing(durable=False) as db:
            db.execute("DELETE FROM outbox WHERE id = ?", (number,))


_STANDING = """FROM votes v JOIN items i USING (item_id)
               WHERE i.queue = ? AND v.annotator = ? AND v.withdrawn_at IS NULL AND (v.role <> 'vote') = ?"""


def _last_vote(db: sqlite3.Connection, queue: str, annotator: str, adjudication: bool) -> sqlite3.Row | None:
    row: sqlite3.Row | None = db.execute(
        f"SELECT v.* {_STANDING} ORDER BY v.at DESC, v.item_id DESC LIMIT 1", (queue, annotator, adjudication)
    ).fetchone()
    return row


def _given_again(db: sqlite3.Connection, meant: Ticket, annotator: str) -> Assignment | None:
    """What came of a vote that was taken back before: the next attempt at its item. Raises ConflictError for one that
    stands."""
    gone = db.execute(
        """SELECT 1 FROM votes WHERE item_id = ? AND annotator = ? AND role = ? AND attempt = ?
           AND withdrawn_at IS NOT NULL""",
        (meant.item_id, annotator, meant.role, meant.attempt),
    ).fetchone()
    if gone is None:
        raise ConflictError("that is not your last vote any more: look at it before you undo")
    return assignment_of(db, Ticket(meant.item_id, meant.attempt + 1, meant.role), annotator)


def _ticket(vote: sqlite3.Row) -> str:
    return str(Ticket(vote["item_id"], vote["attempt"], vote["role"]))


def _post(db: sqlite3.Connection, entry: dict[str, Any]) -> _Posted:
    return int(db.execute("INSERT INTO outbox (entry) VALUES (?)", (json.dumps(entry),)).lastrowid or 0), entry


def _parse(ticket: str) -> Ticket:
    if (found := Ticket.parse(ticket)) is None:
        raise BadInputError(f"not a ticket: {ticket!r}", field="ticket")
    return found


def _queue(db: sqlite3.Connection, name: str) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute("SELECT * FROM queues WHERE name = ? OR queue_id = ?", (name, name)).fetchone()
    if row is None:
        raise NotFoundError(f"no queue {name!r}: see `assay queue list`")
    return row
