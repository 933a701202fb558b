"""Votes as reports read them: from the queue's operational file, or from an imported source.

Covers: `QueueVote`, reading, and the one rule of what an answer comes to. Leaves out: casting votes
(`assay_pipelines.annotation.service`), what is made of them (quality, agreement, adjudication).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from assay.domain import TIES, Answer
from assay.workspace import Workspace
from assay_pipelines.annotation.items import ShownOrder

if TYPE_CHECKING:
    import sqlite3

    from assay_pipelines.annotation.ledger import Ledger

Role: TypeAlias = Literal["vote", "blind", "open"]  #: a vote, or an adjudication without or with sight of the votes
#: What an answer comes to when votes are counted. `undecided`: the person looked and could not decide.
Outcome: TypeAlias = Literal["A", "B", "tie", "undecided"]

#: Why a person gave no preference. The first two say something of the pair and count as a vote; the others free the
#: item for somebody else.
SKIP_REASONS: dict[str, str] = {
    "cannot_decide": "I cannot decide which is better",
    "broken": "the texts are broken or unreadable",
    "not_for_me": "not my field, or I should not judge this one",
    "later": "not now; somebody else may take it",
}
COUNTED_SKIPS = frozenset({"cannot_decide", "broken"})


@dataclass(frozen=True, slots=True)
class QueueVote:
    """One standing vote. `answer` is in canonical A/B; `check_label` is the known answer of a gold check, else None."""

    judgment_id: str
    comparison_id: str
    annotator: str
    answer: Answer
    strength: int | None = None
    confidence: float | None = None
    rationale: str | None = None
    shown_order: ShownOrder | None = None
    seconds: float | None = None
    at: float = 0.0  #: seconds since the epoch
    role: Role = "vote"
    check_label: str | None = None
    undo: bool = False  #: cast after the annotator had taken an earlier one back

    @property
    def outcome(self) -> Outcome | None:
        return outcome(self.answer, self.rationale)


def outcome(answer: str, rationale: str | None) -> Outcome | None:
    """None: the person passed the item on, which says nothing of the pair. A skip's reason begins its rationale."""
    if answer in TIES:
        return "tie"
    if answer == "skip":
        return "undecided" if (rationale or "").partition(":")[0] in COUNTED_SKIPS else None
    return "A" if answer == "A" else "B"


_READ = """SELECT v.judgment_id, i.comparison_id, v.annotator, v.answer, v.strength, v.confidence, v.rationale,
                  v.shown_order, v.seconds, v.at, v.role, i.check_label, v.attempt > 1 AS undo
           FROM items i JOIN votes v USING (item_id)
           WHERE i.queue = ? AND v.withdrawn_at IS NULL"""


def queue_votes(ledger: Ledger, queue: str) -> list[QueueVote]:
    """Standing votes of all roles and the gold checks', in the order they were cast."""
    with ledger.reading() as db:
        rows = db.execute(f"{_READ} ORDER BY v.at, v.judgment_id", (queue,)).fetchall()
    return [_vote(row) for row in rows]


def item_votes(db: sqlite3.Connection, item_id: int) -> list[QueueVote]:
    """Standing votes on one item, by annotators only, inside the caller's transaction."""
    rows = db.execute(
        _READ.replace("i.queue = ?", "i.item_id = ?") + " AND v.role = 'vote' ORDER BY v.at, v.judgment_id", (item_id,)
    )
    return [_vote(row) for row in rows]


def source_votes(workspace: Workspace, source: str) -> list[QueueVote]:
    """The standing votes of people on the comparisons of an imported source, its own annotators' and others'.

    Not those of judges that repeat recorded votes: their people would count twice, and agree with themselves.
    """
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT j.judgment_id, j.comparison_id, n.name, j.answer, j.strength, j.confidence, j.rationale,
                      j.shown_order, j.seconds, epoch(j.created_at)
               FROM opinions j JOIN annotators n USING (annotator_id)
               WHERE n.kind IN ('human', 'simulated') AND json_extract(n.config, '$.recorded') IS NULL
                 AND j.comparison_id IN (SELECT comparison_id FROM origins WHERE source = ?)
               ORDER BY j.created_at, j.judgment_id""",
            [source],
        ).fetchall()
    return [QueueVote(*row) for row in rows]


def by_comparison(votes: Iterable[QueueVote]) -> dict[str, list[QueueVote]]:
    """Only those that say something of the pair."""
    grouped: dict[str, list[QueueVote]] = {}
    for vote in votes:
        if vote.outcome is not None:
            grouped.setdefault(vote.comparison_id, []).append(vote)
    return grouped


def majority(votes: Sequence[QueueVote]) -> tuple[Outcome | None, Mapping[Outcome, int]]:
    """The outcome that more than half of the votes have, or None, and the count of each."""
    counts: dict[Outcome, int] = {}
    for vote in votes:
        if (said := vote.outcome) is not None:
            counts[said] = counts.get(said, 0) + 1
    total = sum(counts.values())
    winner = next((said for said, number in counts.items() if 2 * number > total), None)
    return winner, counts


def _vote(row: Any) -> QueueVote:
    values = dict(row)
    values["undo"] = bool(values["undo"])
    return QueueVote(**values)
