"""An annotator's own figures in a queue: gold checks passed, agreement with the others, speed, position bias.

They must not reveal which item was a gold check, since a missed check could then be taken back: they cover whole blocks
of items, each with its share of checks (`assignment.check_is_due`), and first answers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from assay.statistics.intervals import Interval
from assay_pipelines.annotation.assignment import BLOCK
from assay_pipelines.annotation.ledger import Ledger
from assay_pipelines.annotation.quality.annotators import quality_of
from assay_pipelines.annotation.queues import find_queue
from assay_pipelines.annotation.votes import by_comparison, queue_votes, vote_of


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
            """SELECT v.judgment_id, i.comparison_id, v.annotator, v.answer, v.rationale, v.shown_order, v.seconds,
                      i.check_label, l.labels
               FROM votes v JOIN items i USING (item_id) LEFT JOIN vote_labels l USING (judgment_id)
               WHERE i.queue = ? AND v.annotator = ? AND v.role = 'vote' AND v.attempt = 1
               ORDER BY v.at, v.judgment_id""",
            (record.name, annotator),
        ).fetchall()
    votes = [vote_of(row) for row in rows[: len(rows) // block * block]]
    cast = [v for v in queue_votes(ledger, record.name) if v.role == "vote"] if votes else []
    quality = quality_of(annotator, votes, by_comparison(cast))
    streak = 0
    for vote in votes:
        if vote.check_label is not None and vote.answer != "skip":
            streak = streak + 1 if vote.passed else 0
    shared = {f.name: getattr(quality, f.name) for f in fields(OwnFigures) if hasattr(quality, f.name)}
    return OwnFigures(**shared | {"votes": len(votes), "block": block, "streak": streak})
