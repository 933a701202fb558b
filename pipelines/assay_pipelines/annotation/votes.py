"""Votes on queue items and imported pairs: reading them, and the majority or adjudication of one comparison."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from assay.annotation.queue_changes import Suggestion
from assay.annotation.votes import MAJORITY, Outcome, Tally, tally
from assay.domain import Answer, ShownOrder
from assay.store.records import Evidence
from assay.workspace import Workspace
from assay_pipelines.annotation.answer_match import AnswerLabels, consensus, matches
from assay_pipelines.annotation.question_types.question_type import ANSWERED, outcome_of

if TYPE_CHECKING:
    import sqlite3

    from assay_pipelines.annotation.ledger import Ledger

Role: TypeAlias = Literal["vote", "blind", "open"]  #: a vote, or an adjudication without or with sight of the votes


@dataclass(frozen=True, slots=True)
class QueueVote:
    """One standing vote. `answer` is in canonical A/B; `check_label` is the known answer of a gold check, else None."""

    judgment_id: str
    comparison_id: str
    annotator: str
    answer: Answer | Literal["answered"]
    strength: int | None = None
    confidence: float | None = None
    rationale: str | None = None
    shown_order: ShownOrder | None = None
    seconds: float | None = None
    at: float = 0.0  #: seconds since the epoch
    role: Role = "vote"
    check_label: str | None = None
    labels: AnswerLabels | None = None  #: of an answer on what is no pair
    undo: bool = False  #: cast after the annotator had taken an earlier one back
    guideline: int | None = None  #: version that was shown
    suggestion: Suggestion | None = None  #: whether a judge's answer was in view

    @property
    def outcome(self) -> Outcome | None:
        return outcome_of(self.answer, self.rationale)

    @property
    def passed(self) -> bool:
        """Whether a vote on a gold check is the known answer."""
        if self.labels is not None and self.check_label is not None:
            return matches(json.loads(self.check_label), self.labels)
        return self.outcome == self.check_label

    def agrees(self, other_votes: "Sequence[QueueVote]") -> bool | None:
        """Whether it is what most of the others say; None where they have no majority."""
        if self.answer == ANSWERED and self.labels is not None:
            most = consensus(
                [vote.labels for vote in other_votes if vote.answer == ANSWERED and vote.labels is not None]
            )
            return None if most is None else matches(self.labels, most)
        winner = majority(other_votes).winner
        return None if winner is None else self.outcome == winner


_READ = """SELECT v.judgment_id, i.comparison_id, v.annotator, v.answer, v.strength, v.confidence, v.rationale,
                  v.shown_order, v.seconds, v.at, v.role, i.check_label, l.labels,
                  v.attempt > 1 AS undo, v.guideline, v.suggestion
           FROM items i JOIN votes v USING (item_id) LEFT JOIN vote_labels l USING (judgment_id)
           WHERE i.queue = ? AND v.withdrawn_at IS NULL"""


def queue_votes(ledger: "Ledger", queue: str) -> list[QueueVote]:
    """Standing votes of all roles and the gold checks', in the order they were cast."""
    with ledger.reading() as db:
        rows = db.execute(f"{_READ} ORDER BY v.at, v.judgment_id", (queue,)).fetchall()
    return [vote_of(row) for row in rows]


@dataclass(frozen=True)
class ChangedVote:
    """A vote that was cast or taken back at `changed`, with what was said of principles with it."""

    vote: QueueVote
    changed: float
    withdrawn: bool
    principles: tuple[dict[str, Any], ...]


def changed_votes(
    ledger: "Ledger", queue: str, after: tuple[float, str], *, until: float, most: int
) -> list[ChangedVote]:
    """Votes of all roles that were cast or taken back after a change (its time and judgment id) and before `until`, in
    this order."""
    changed = "coalesce(v.withdrawn_at, v.at)"
    read = _READ.replace("v.role,", f"v.role, {changed} AS changed, v.withdrawn_at,", 1)
    with ledger.reading() as db:
        rows = db.execute(
            f"""{read.replace(" AND v.withdrawn_at IS NULL", "")} AND ({changed}, v.judgment_id) > (?, ?)
                AND {changed} < ? ORDER BY changed, v.judgment_id LIMIT ?""",
            (queue, *after, until, most),
        ).fetchall()
        principles: dict[str, list[dict[str, Any]]] = {row["judgment_id"]: [] for row in rows}
        for row in db.execute(
            f"""SELECT * FROM vote_principles WHERE judgment_id IN ({", ".join("?" * len(principles))})
                ORDER BY judgment_id, response, principle""",
            tuple(principles),
        ):
            principle = dict(row)
            principles[principle.pop("judgment_id")].append(principle)
    changes = []
    for row in rows:
        fields = dict(row)
        at, withdrawn = fields.pop("changed"), fields.pop("withdrawn_at") is not None
        changes.append(ChangedVote(vote_of(fields), at, withdrawn, tuple(principles[fields["judgment_id"]])))
    return changes


def item_votes(db: "sqlite3.Connection", item_id: int) -> list[QueueVote]:
    """Standing votes on one item, by annotators only, inside the caller's transaction."""
    rows = db.execute(
        _READ.replace("i.queue = ?", "i.item_id = ?") + " AND v.role = 'vote' ORDER BY v.at, v.judgment_id", (item_id,)
    )
    return [vote_of(row) for row in rows]


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


def majority(votes: Sequence[QueueVote]) -> Tally[Outcome]:
    """More than half of the votes decide: A, A, B, tie has no winner."""
    return tally([vote.outcome for vote in votes], strengths=[vote.strength for vote in votes], threshold=MAJORITY)


def recount(db: "sqlite3.Connection", item_id: int) -> None:
    """Set an item's count and state from its standing votes, inside the caller's transaction."""
    row = db.execute(
        "SELECT q.overlap, i.is_check, i.removed FROM items i JOIN queues q ON q.name = i.queue WHERE item_id = ?",
        (item_id,),
    ).fetchone()
    votes = item_votes(db, item_id)
    counts = majority(votes)
    answers = [vote.labels for vote in votes if vote.answer == ANSWERED and vote.labels is not None]
    agreed = counts.winner is not None and not (answers and consensus(answers) is None)
    counted = int(sum(counts.weights.values()))
    done = bool(row["overlap"]) and counted >= row["overlap"] and not row["is_check"]
    enough = done or (not row["overlap"] and counted > 1 and not row["is_check"])
    db.execute(
        "UPDATE items SET taken = ?, done = ?, conflict = ? WHERE item_id = ?",
        (counted, done or row["removed"], enough and not agreed, item_id),
    )


@dataclass(frozen=True)
class VoteResult:
    """What the votes on one comparison come to. `outcome` None: a conflict, without majority or adjudication. `margin`:
    mean strength of the deciding votes, for A and B. `votes`: annotators' votes that count. `deciding`: those with the
    outcome, or the adjudication."""

    outcome: Outcome | None
    margin: float | None
    votes: tuple[QueueVote, ...]
    deciding: tuple[QueueVote, ...] = ()

    @property
    def adjudication(self) -> QueueVote | None:
        return next((vote for vote in self.deciding if vote.role != "vote"), None)


def result_of(votes: Sequence[QueueVote], *, least: int) -> VoteResult | None:
    """`votes`: standing ones on one comparison, adjudications included; the last adjudication decides where there is no
    majority. `least`: votes needed for a majority; None: there are fewer."""
    counted = tuple(vote for vote in votes if vote.role == "vote" and vote.outcome is not None)
    counts = majority(counted)
    if len(counted) >= least and counts.winner is not None:
        margin = counts.margin if counts.winner in ("A", "B") else None
        return VoteResult(counts.winner, margin, counted, tuple(v for v in counted if v.outcome == counts.winner))
    adjudication = next((v for v in reversed(votes) if v.role != "vote" and v.outcome is not None), None)
    if adjudication is not None:
        margin = adjudication.strength if adjudication.outcome in ("A", "B") else None
        return VoteResult(adjudication.outcome, margin, counted, (adjudication,))
    return VoteResult(None, None, counted) if len(counted) >= least else None


def basis_of(result: VoteResult) -> list[Evidence]:
    """What a decision by these votes rests on: all that were counted, and the adjudication."""
    return [Evidence("counted", vote.judgment_id) for vote in dict.fromkeys((*result.votes, *result.deciding))]


def vote_of(row: Any) -> QueueVote:
    """`row`: of the operational file, with the fields of a vote by name."""
    values = dict(row)
    values["undo"] = bool(values.get("undo"))
    values["labels"] = json.loads(values["labels"]) if values["labels"] else None
    return QueueVote(**values)
