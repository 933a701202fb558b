"""Who worked how long on which queue, for pay: active time and items by person, between two dates.

Active time is the sum of the times recorded with each answer, gold checks, changed answers and adjudications included;
of one answer at most `idle_s` counts, for somebody may have left the page open. Items are different ones answered or
passed on. Leaves out: rates of pay (the caller).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay_pipelines.annotation.ledger import Ledger

IDLE_S = 300.0


@dataclass(frozen=True, slots=True)
class WorkTime:
    """`answers`: changed ones too. `seconds`: active time; `capped`: answers whose time was cut to the cap, which left
    out `idle` seconds. `untimed`: answers without a recorded time. `first`, `last`: when, seconds since the epoch."""

    annotator: str
    queue: str
    items: int
    answers: int
    seconds: float
    capped: int
    idle: float
    untimed: int
    first: float
    last: float


def work_times(
    ledger: Ledger, queues: Sequence[str], *, since: float = 0.0, until: float = 1e12, idle_s: float = IDLE_S
) -> list[WorkTime]:
    """By person and queue, both in alphabetical order. `since` is included, `until` not."""
    with ledger.reading() as db:
        rows = db.execute(
            f"""SELECT v.annotator, i.queue, count(DISTINCT v.item_id), count(*),
                       coalesce(sum(min(v.seconds, ?)), 0.0), coalesce(sum(v.seconds > ?), 0),
                       coalesce(sum(max(v.seconds - ?, 0.0)), 0.0), sum(v.seconds IS NULL), min(v.at), max(v.at)
                FROM votes v JOIN items i USING (item_id)
                WHERE v.at >= ? AND v.at < ? AND i.queue IN ({", ".join("?" * len(queues))})
                GROUP BY v.annotator, i.queue ORDER BY v.annotator, i.queue""",
            (idle_s, idle_s, idle_s, since, until, *queues),
        ).fetchall()
    return [WorkTime(*row) for row in rows]
