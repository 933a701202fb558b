"""An annotator's own figures in a queue: gold checks passed, agreement with the others, speed, position bias.

They must not reveal which item was a gold check, since a missed check could then be taken back: they cover whole blocks
of items, each with its share of checks (`assignment.check_is_due`), and first answers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from assay.statistics.intervals import Interval, wilson
from assay_pipelines.annotation.assignment import BLOCK
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.question_types.question_type import outcome_of
from assay_pipelines.annotation.queues import find_queue
from assay_pipelines.annotation.votes import by_comparison, majority, queue_votes


@dataclass(frozen=True)
class OwnFigures:
    """`votes`: how many of the person's first answers are covered; `block`: how many are added at a time. `streak`:
    gold checks passed one after the other, up to the last of them. `compared`: items on which the others have a
    majority; `agreed`: of them, those with the same answer. `first_rate`: share of preferences for the response shown
    first. None where there is nothing to tell from."""

    votes: int
    block: int
    checks: int
    passed: int
    streak: int
    accuracy: Interval | None
    compared: int
    agreed: int
    agreement: Interval | None
    median_seconds: float | None
    first_rate: Interval | None


def own_figures(ledger: Ledger, queue: str, annotator: str) -> OwnFigures:
    """Raises NotFoundError for an unknown queue."""
    record = find_queue(ledger, queue)
    block = max(BLOCK, math.ceil(1 / record.gold_checks)) if record.gold_checks else BLOCK
    with ledger.reading() as db:
        rows = db.execute(
            """SELECT i.comparison_id, i.check_label, v.answer, v.rationale, v.shown_order, v.seconds
               FROM votes v JOIN items i USING (item_id)
               WHERE i.queue = ? AND v.annotator = ? AND v.role = 'vote' AND v.attempt = 1
               ORDER BY v.at, v.judgment_id""",
            (record.name, annotator),
        ).fetchall()
    rows = rows[: len(rows) // block * block]
    peers = by_comparison(
        v for v in queue_votes(ledger, record.name) if v.role == "vote" and v.annotator != annotator and rows
    )
    checks = passed = streak = compared = agreed = first = preferred = 0
    for row in rows:
        outcome = outcome_of(row["answer"], row["rationale"])
        if row["answer"] in ("A", "B"):
            preferred += 1
            first += row["answer"] == row["shown_order"][0]
        if row["check_label"] is not None:
            if row["answer"] != "skip":
                checks += 1
                right = outcome == row["check_label"]
                passed += right
                streak = streak + 1 if right else 0
        elif outcome is not None:
            winner = majority(peers.get(row["comparison_id"], [])).winner
            compared += winner is not None
            agreed += winner == outcome
    times = [row["seconds"] for row in rows if row["seconds"] is not None]
    return OwnFigures(
        votes=len(rows),
        block=block,
        checks=checks,
        passed=passed,
        streak=streak,
        accuracy=wilson(passed, checks) if checks else None,
        compared=compared,
        agreed=agreed,
        agreement=wilson(agreed, compared) if compared else None,
        median_seconds=median(times) if times else None,
        first_rate=wilson(first, preferred) if preferred else None,
    )
