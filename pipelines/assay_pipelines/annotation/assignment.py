"""Assignment of items to annotators, inside one transaction of the operational file.

What you hold comes back first (a reload changes nothing); then, at the queue's rate, a gold check that you have not
seen; else the item of the highest priority, those assigned to you first, ties broken by a hash, that you have neither
voted on nor passed on and whose votes and leases by others are fewer than the overlap. Adjudicators get conflicts that
they did not vote on. Leaves out: who is admitted (`admission`).
"""

import json
import math
import re
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

from assay.annotation.queue_changes import Suggestion
from assay.domain import ShownOrder
from assay_pipelines.annotation.items import ShownItem, shown_opinions
from assay_pipelines.annotation.queue_options import QueueOptions
from assay_pipelines.annotation.queue_state import guideline_version
from assay_pipelines.annotation.votes import Role


@dataclass(frozen=True, slots=True)
class Assignment:
    """An item before an annotator. `ticket` names it in a vote; a repeated vote by the same ticket is recognised. It
    does not say whether the item is a gold check."""

    queue: str
    annotator: str
    ticket: str
    comparison_id: str
    payload: Mapping[str, Any] = field(repr=False)  #: all that the item holds, judges' opinions too
    shown_order: ShownOrder
    role: Role
    expires_at: float  #: seconds since the epoch
    run_id: str | None  #: of the queue
    guideline: int | None = None  #: version that stood beside it when it was given out
    suggestion: Suggestion | None = None  #: whether judges' answers are or were in view

    @property
    def content(self) -> ShownItem:
        """The item as this annotator sees it."""
        return ShownItem.of(self.payload, self.shown_order)

    @property
    def response_ids(self) -> list[str]:
        """Of an item that is no pair, in the order shown."""
        listed: list[str] = self.payload.get("response_ids", [])
        return listed if self.shown_order == "AB" else listed[::-1]

    @property
    def seal(self) -> str:
        """Identifies the texts: a vote may wait in a browser while the operational file is rebuilt, or another
        workspace is served at the same address, and its ticket could then name another item."""
        return draw("seal", self.ticket, self.annotator, self.comparison_id, self.shown_order)[:16]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Item, attempt (1, and one more after each undo) and role, as a word that fits into a URL."""

    item_id: int
    attempt: int
    role: Role

    def __str__(self) -> str:
        return f"{self.item_id}-{self.attempt}-{self.role}"

    @classmethod
    def parse(cls, text: str) -> "Ticket | None":
        if (match := _TICKET.fullmatch(text)) is None:
            return None
        return cls(int(match[1]), int(match[2]), match[3])  # type: ignore[arg-type]


#: No number larger than the file can hold.
_TICKET = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-(vote|blind|open)")
BLOCK = 20  #: items within which the share of gold checks is kept
_ADJUDICATION: tuple[Role, ...] = ("blind", "open")


def draw(*parts: object) -> str:
    """32 hex digits, evenly spread and the same on every machine: the order of items and of the two responses."""
    return sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()[:32]


def share(drawn: str) -> float:
    """A draw as a number in [0, 1)."""
    return int(drawn[:13], 16) / 16**13


def shown_order(comparison_id: str, annotator: str, seed: int) -> ShownOrder:
    """Random for each pair and person, and the same however often it is shown to that person."""
    return "AB" if share(draw("order", seed, annotator, comparison_id)) < 0.5 else "BA"


def next_assignment(
    db: sqlite3.Connection, queue: sqlite3.Row, annotator: str, *, qualifying: bool = False
) -> Assignment | None:
    """Lease the next item to the annotator; None when there is none for them now. `queue`: its row. `qualifying`: gold
    checks alone, and whatever they are once there is none left."""
    if (held := _held(db, queue, annotator, "vote")) is not None:
        return held
    if queue["closed"] or queue["paused"] or queue["deleted"]:
        return None
    item = _next_check(db, queue, annotator) if qualifying else None
    item = item or _next_item(db, queue, annotator)
    if item is not None and queue["gold_checks"] and not qualifying:
        (answered,) = db.execute(
            """SELECT count(DISTINCT item_id) FROM votes JOIN items USING (item_id)
               WHERE queue = ? AND annotator = ? AND role = 'vote'""",
            (queue["name"], annotator),
        ).fetchone()
        if check_is_due(queue["gold_checks"], queue["seed"], annotator, answered):
            item = _next_check(db, queue, annotator) or item
    return None if item is None else lease_item(db, queue, annotator, item["item_id"], "vote")


def shown_in_all(rate: float, seed: int, annotator: str, *, items: int, checks: int, first: int = 0) -> int:
    """How many items, gold checks among them, a person has been shown when they have had `items` others, of a queue
    with so many `checks`, the `first` of which come before everything else.

    With every answer it stays what it was, be it on a check or not: it depends on neither.
    """
    if not rate:
        return items + first
    block = block_of(rate)
    ordinary = block - round(block * rate)

    def ordinary_before(position: int) -> int:
        number, offset = divmod(position, block)
        return number * ordinary + sum(p not in _check_places(rate, seed, annotator, number) for p in range(offset))

    number, offset = divmod(ordinary_before(first) + items, ordinary)
    total = number * block
    if offset:
        places = _check_places(rate, seed, annotator, number)
        total += [p for p in range(block) if p not in places][offset - 1] + 1
    elif items:  # ends with the last item that is no check
        places = _check_places(rate, seed, annotator, number - 1)
        total -= block - 1 - max(p for p in range(block) if p not in places)
    return min(total if items else first, items + max(first, checks))


def work_left(db: sqlite3.Connection, queue: sqlite3.Row, annotator: str) -> tuple[int, int]:
    """Items, checks left out, that the annotator has answered or passed on or that are open to them; and the checks."""
    (had,) = db.execute(
        """SELECT count(*) FROM votes JOIN items USING (item_id) WHERE queue = ? AND annotator = ? AND role = 'vote'
           AND withdrawn_at IS NULL AND NOT is_check""",
        (queue["name"], annotator),
    ).fetchone()
    values = {"queue": queue["name"], "id": queue["queue_id"], "who": annotator}
    (waiting,) = db.execute(
        f"""SELECT count(*) FROM items i WHERE queue = :queue AND is_check = 0 AND done = 0 AND {_UNSEEN}
            {f"AND {_ASKED}" if _has_assigned(db, queue) else ""}""",
        values,
    ).fetchone()
    (checks,) = db.execute(
        "SELECT count(*) FROM items WHERE queue = ? AND is_check = 1 AND NOT removed", (queue["name"],)
    ).fetchone()
    return had + waiting, checks


def block_of(rate: float) -> int:
    """Items within which the share of checks is kept at that rate."""
    return max(BLOCK, math.ceil(1 / rate)) if rate else BLOCK


def check_is_due(rate: float, seed: int, annotator: str, answered: int) -> bool:
    """Whether a person who has had `shown` items gets a gold check next. Every block of items holds its share of
    checks, at positions drawn for this annotator, who cannot tell which they are."""
    number, offset = divmod(answered, block_of(rate))
    return offset in _check_places(rate, seed, annotator, number)


@lru_cache(maxsize=4096)  # computing the positions for every item would cost as much as finding it
def _check_places(rate: float, seed: int, annotator: str, number: int) -> frozenset[int]:
    """The places of the gold checks in a person's block of that number."""
    block = block_of(rate)
    order = sorted(range(block), key=lambda p: draw("check", seed, annotator, number, p))
    return frozenset(order[: round(block * rate)])


def next_conflict(
    db: sqlite3.Connection, queue: sqlite3.Row, adjudicator: str, *, sees_votes: bool
) -> Assignment | None:
    """Lease the next item without a majority to an annotator who did not vote on it; one adjudicator at a time."""
    role: Role = "open" if sees_votes else "blind"
    for held_as in _ADJUDICATION:
        if (held := _held(db, queue, adjudicator, held_as)) is not None:
            return held
    item = db.execute(
        f"SELECT item_id {_CONFLICTS} ORDER BY priority DESC, draw LIMIT 1",
        {"queue": queue["name"], "who": adjudicator, "now": time.time()},
    ).fetchone()
    return None if item is None else lease_item(db, queue, adjudicator, item["item_id"], role)


def conflicts_left(db: sqlite3.Connection, queue: str, adjudicator: str) -> int:
    """Items without a majority that the adjudicator can have: the one before them counts, others' do not."""
    (number,) = db.execute(
        f"SELECT count(*) {_CONFLICTS}", {"queue": queue, "who": adjudicator, "now": time.time()}
    ).fetchone()
    return int(number)


def slots_left(db: sqlite3.Connection, item_id: int, annotator: str) -> bool:
    """Whether the annotator may still vote on the item: others' votes and live leases are fewer than the overlap."""
    row = db.execute(
        f"""SELECT i.is_check OR q.overlap = 0 OR i.taken - {_OWN} + {_LEASED} < q.overlap AS free
            FROM items i JOIN queues q ON q.name = i.queue WHERE item_id = :item""",
        {"item": item_id, "who": annotator, "now": time.time()},
    ).fetchone()
    return bool(row["free"])


def load_assignment(db: sqlite3.Connection, ticket: Ticket, annotator: str) -> Assignment | None:
    """The item behind a ticket: of a lease, run out or not, or of a vote, withdrawn or not; else None."""
    columns = "t.item_id, t.attempt, t.role, t.shown_order"
    of_item = "i.queue AS name, i.comparison_id, p.payload, q.run_id, t.guideline, t.suggestion"
    source = "JOIN items i USING (item_id) JOIN payloads p USING (item_id) JOIN queues q ON q.name = i.queue"
    condition = "WHERE t.item_id = :item AND t.annotator = :who AND t.role = :role AND t.attempt = :attempt"
    row = db.execute(
        f"""SELECT {columns}, t.expires_at, {of_item} FROM leases t {source} {condition}
            UNION ALL SELECT {columns}, t.at AS expires_at, {of_item} FROM votes t {source} {condition} LIMIT 1""",
        {"item": ticket.item_id, "who": annotator, "role": ticket.role, "attempt": ticket.attempt},
    ).fetchone()
    return None if row is None else _assignment(row, annotator, row)


def _assignment(queue: sqlite3.Row, annotator: str, lease: sqlite3.Row) -> Assignment:
    """`lease`: a row of leases joined with its item."""
    ticket = Ticket(lease["item_id"], lease["attempt"], lease["role"])
    return Assignment(
        queue["name"],
        annotator,
        str(ticket),
        lease["comparison_id"],
        json.loads(lease["payload"]),
        lease["shown_order"],
        lease["role"],
        lease["expires_at"],
        queue["run_id"],
        lease["guideline"],
        lease["suggestion"],
    )


# Items without a majority, not adjudicated, that the adjudicator did not vote on and no other has before them.
_CONFLICTS = """FROM items i
    WHERE queue = :queue AND conflict = 1
      AND NOT EXISTS (SELECT 1 FROM votes v WHERE v.item_id = i.item_id AND v.withdrawn_at IS NULL
                        AND (v.role <> 'vote' OR v.annotator = :who))
      AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.item_id = i.item_id AND l.role <> 'vote'
                        AND l.annotator <> :who AND l.expires_at > :now)"""
# Leases of an item `i` that others hold now.
_LEASED = """(SELECT count(*) FROM leases l WHERE l.item_id = i.item_id AND l.role = 'vote'
               AND l.annotator <> :who AND l.expires_at > :now)"""
# Whether this person's own vote is among those on item `i` that count.
_OWN = """EXISTS (SELECT 1 FROM votes v WHERE v.item_id = i.item_id AND v.annotator = :who AND v.role = 'vote'
            AND v.counts AND v.withdrawn_at IS NULL)"""
_MINE = """EXISTS (SELECT 1 FROM item_people a WHERE a.queue_id = :id AND a.comparison_id = i.comparison_id
             AND a.annotator = :who)"""
_ASKED = f"""({_MINE} OR NOT EXISTS (SELECT 1 FROM item_people a WHERE a.queue_id = :id
               AND a.comparison_id = i.comparison_id))"""
_UNSEEN = """NOT EXISTS (SELECT 1 FROM votes v WHERE v.item_id = i.item_id AND v.annotator = :who
               AND v.role = 'vote' AND v.withdrawn_at IS NULL)"""


def _next_item(db: sqlite3.Connection, queue: sqlite3.Row, annotator: str) -> sqlite3.Row | None:
    values = {"queue": queue["name"], "who": annotator, "now": time.time(), "overlap": queue["overlap"]}
    values["id"] = queue["queue_id"]
    of_people = _has_assigned(db, queue)
    row: sqlite3.Row | None = db.execute(
        f"""SELECT item_id FROM items i
            WHERE queue = :queue AND is_check = 0 AND done = 0 AND {_UNSEEN}
              {f"AND taken + {_LEASED} < :overlap" if queue["overlap"] else ""}
              {f"AND {_ASKED}" if of_people else ""}
            ORDER BY {f"{_MINE} DESC," if of_people else ""} priority DESC, draw LIMIT 1""",
        values,
    ).fetchone()
    return row


def _has_assigned(db: sqlite3.Connection, queue: sqlite3.Row) -> bool:
    return (
        db.execute("SELECT 1 FROM item_people WHERE queue_id = ? LIMIT 1", (queue["queue_id"],)).fetchone() is not None
    )


def requested_assignment(
    db: sqlite3.Connection, queue: sqlite3.Row, annotator: str, item_id: int, *, others: bool
) -> Assignment | None:
    """Lease that item, which somebody linked to; None where it is not for this person now. One that they have answered
    comes for another answer, as long as the queue is open. `others`: also one that they neither have nor answered,
    which is for those who may know which items are checks: what a link opens and what not would tell it."""
    values = {"item": item_id, "queue": queue["name"], "id": queue["queue_id"], "who": annotator, "now": time.time()}
    row = db.execute(
        f"""SELECT {_ASKED} AS asked, removed, NOT {_UNSEEN} AS answered FROM items i
            WHERE item_id = :item AND queue = :queue""",
        values,
    ).fetchone()
    if row is None or queue["closed"] or queue["deleted"]:
        return None
    held = db.execute(
        "SELECT expires_at FROM leases WHERE item_id = :item AND annotator = :who AND role = 'vote'", values
    ).fetchone()
    holds = held is not None and (held["expires_at"] > time.time() or slots_left(db, item_id, annotator))
    free = others and row["asked"] and not (row["removed"] or queue["paused"])
    if row["answered"] or holds or (free and slots_left(db, item_id, annotator)):
        return lease_item(db, queue, annotator, item_id, "vote")
    return None


def _next_check(db: sqlite3.Connection, queue: sqlite3.Row, annotator: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = db.execute(
        f"""SELECT item_id FROM items i WHERE queue = :queue AND is_check = 1 AND done = 0 AND {_UNSEEN}
            ORDER BY priority DESC, draw LIMIT 1""",
        {"queue": queue["name"], "who": annotator},
    ).fetchone()
    return row


def _held(db: sqlite3.Connection, queue: sqlite3.Row, annotator: str, role: Role) -> Assignment | None:
    """The item that the annotator has before them, its lease renewed; one whose place others have taken is let go."""
    leases = db.execute(
        """SELECT l.*, i.comparison_id, p.payload
           FROM leases l JOIN items i USING (item_id) JOIN payloads p USING (item_id)
           WHERE i.queue = ? AND l.annotator = ? AND l.role = ? ORDER BY l.leased_at DESC""",
        (queue["name"], annotator, role),
    ).fetchall()
    for lease in leases:
        if lease["expires_at"] > time.time() or (role == "vote" and slots_left(db, lease["item_id"], annotator)):
            expires, version = time.time() + queue["lease_seconds"], guideline_version(db, queue["queue_id"])
            db.execute(
                "UPDATE leases SET expires_at = ?, guideline = ? WHERE item_id = ? AND annotator = ? AND role = ?",
                (expires, version, lease["item_id"], annotator, role),
            )
            return replace(_assignment(queue, annotator, lease), guideline=version)
        drop_lease(db, lease["item_id"], annotator, role)
    return None


def lease_item(db: sqlite3.Connection, queue: sqlite3.Row, annotator: str, item_id: int, role: Role) -> Assignment:
    """Give the item to the annotator for their next attempt at it."""
    (attempts,) = db.execute(
        "SELECT coalesce(max(attempt), 0) FROM votes WHERE item_id = ? AND annotator = ? AND role = ?",
        (item_id, annotator, role),
    ).fetchone()
    comparison, payload = db.execute(
        "SELECT comparison_id, payload FROM items JOIN payloads USING (item_id) WHERE item_id = ?", (item_id,)
    ).fetchone()
    order = shown_order(comparison, annotator, queue["seed"])
    now = time.time()
    options, suggestion = QueueOptions.of(queue["options"]), None
    if role == "vote" and (options.suggestions == "before" or (options.suggestions == "after" and attempts)):
        suggestion = options.suggestions if shown_opinions(json.loads(payload), options.suggested_by) else None
    version = guideline_version(db, queue["queue_id"])
    db.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (item_id, annotator, role, attempts + 1, order, now, now + queue["lease_seconds"], version, suggestion),
    )
    lease = db.execute(
        """SELECT l.*, i.comparison_id, p.payload
           FROM leases l JOIN items i USING (item_id) JOIN payloads p USING (item_id)
           WHERE l.item_id = ? AND l.annotator = ? AND l.role = ?""",
        (item_id, annotator, role),
    ).fetchone()
    return _assignment(queue, annotator, lease)


def drop_lease(db: sqlite3.Connection, item_id: int, annotator: str, role: Role) -> None:
    db.execute("DELETE FROM leases WHERE item_id = ? AND annotator = ? AND role = ?", (item_id, annotator, role))
