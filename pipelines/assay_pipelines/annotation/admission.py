"""Who a queue admits: qualification by gold checks, and a least share of right checks later.

A person's checks are their first answers to gold checks, in the order given; an undo changes none of them. The later
rule looks at whole blocks of items, as a person's own figures do: nothing tells at once which answer was on a check.
Leaves out: handing out checks (`assignment`), admitting by hand (a change `admission`, see `queue_state`).
"""

import math
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from assay.annotation.queue_changes import QueueChange
from assay_pipelines.annotation.queue_options import QueueOptions
from assay_pipelines.annotation.votes import QueueVote, vote_of

#: open: no rule. pending: still at the checks that are asked first. held: admitted once, below the share since.
AdmissionState: TypeAlias = Literal["open", "pending", "admitted", "failed", "held"]


@dataclass(frozen=True, slots=True)
class Admission:
    """`reason`: one line, for the person and those who run the queue. `checks`, `right`: of all first answers.
    `person`: who decided, None for the rule."""

    state: AdmissionState
    reason: str = ""
    checks: int = 0
    right: int = 0
    person: str | None = None
    since: float | None = None

    @property
    def works(self) -> bool:
        return self.state in ("open", "pending", "admitted")


ANYBODY = Admission("open")  #: of a queue without a rule


def admission_of(db: sqlite3.Connection, queue: sqlite3.Row, annotator: str, block: int) -> Admission:
    """As the rules have it now: `admitted`, `failed` and `held` that are new have no `since` yet. `queue`: its row."""
    options = QueueOptions.of(queue["options"])
    if not (options.qualify_checks or options.gate_checks):
        return ANYBODY
    row = db.execute(
        "SELECT state, reason, person, at FROM admissions WHERE queue_id = ? AND annotator = ?",
        (queue["queue_id"], annotator),
    ).fetchone()
    answered = _first_answers(db, queue["name"], annotator)
    total = _counted(_checks(answered))
    if row is not None and row["state"] != "admitted":
        return Admission(row["state"], row["reason"], *total, row["person"], row["at"])
    if row is None and options.qualify_checks:
        checks, right = _counted(_checks(answered)[: options.qualify_checks])
        if checks < options.qualify_checks:
            return Admission("pending", "", *total)
        least = math.ceil(round(options.qualify_share * checks, 9))
        words = f"{right} of the first {checks} items with a known answer right, {least} are needed"
        return Admission("admitted" if right >= least else "failed", words, *total)
    since = row["at"] if row is not None else 0.0
    later = _checks([vote for vote in answered[: len(answered) // block * block] if vote.at > since])
    checks, right = _counted(later)
    if options.gate_checks and checks >= options.gate_checks and right < options.gate_share * checks:
        words = f"{right} of {checks} items with a known answer right, at least {options.gate_share:.0%} are asked for"
        return Admission("held", words, *total)
    by = (row["person"], row["at"]) if row is not None else (None, None)
    return Admission("admitted", row["reason"] if row is not None else "", *total, *by)


def decided_now(queue: sqlite3.Row, annotator: str, admission: Admission) -> QueueChange | None:
    """The change that records what the rules have just decided; None for what is recorded already or is no decision."""
    if admission.since is not None or admission.state in ("open", "pending") or not admission.reason:
        return None
    detail = {"annotator": annotator, "state": admission.state, "reason": admission.reason}
    return QueueChange(queue["queue_id"], "admission", detail, None, time.time())


def _first_answers(db: sqlite3.Connection, queue: str, annotator: str) -> list[QueueVote]:
    rows = db.execute(
        """SELECT v.judgment_id, i.comparison_id, v.annotator, v.answer, v.rationale, v.at, i.check_label, l.labels
           FROM votes v JOIN items i USING (item_id) LEFT JOIN vote_labels l USING (judgment_id)
           WHERE i.queue = ? AND v.annotator = ? AND v.role = 'vote' AND v.attempt = 1 ORDER BY v.at, v.judgment_id""",
        (queue, annotator),
    )
    return [vote_of(row) for row in rows]


def _checks(answered: Sequence[QueueVote]) -> list[QueueVote]:
    return [vote for vote in answered if vote.check_label is not None]


def _counted(checks: Sequence[QueueVote]) -> tuple[int, int]:
    """Checks, and those right; a skipped one is not."""
    return len(checks), sum(vote.answer != "skip" and vote.passed for vote in checks)
