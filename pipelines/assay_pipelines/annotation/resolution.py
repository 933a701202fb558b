"""Resolution of a queue: majorities and adjudications become decisions, with a rule and a reason each.

More than half of the votes decide; without a majority the adjudicator does; what annotators cannot decide is discarded
and never sent to an LLM (rule `people_undecided`). A decision that anything else has made since the pair was queued
stands. One of the queue's own that its votes no longer carry, after an undo, becomes pending. A ranking is a vote on
each pair of its responses. Leaves out: ratings, steps and spans, whose labels count as they are.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from assay.annotation.vote_journal import fold
from assay.annotation.votes import Outcome
from assay.errors import BadInputError
from assay.store.database import Connection, registered
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.annotation.question_types.question_type import ANSWERED
from assay_pipelines.annotation.queues import find_queue
from assay_pipelines.annotation.recording import record_event, sync_events
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.annotation.votes import QueueVote, VoteResult, basis_of, by_comparison, queue_votes, result_of

PEOPLE_MAJORITY, ADJUDICATED = "people_majority", "adjudicated"
UNDECIDED, REVOKED = "people_undecided", "people_revoked"
_NAMES: Mapping[Outcome, str] = {"A": "A", "B": "B", "tie": "tie", "undecided": "cannot decide"}


@dataclass(frozen=True)
class ResolutionReport:
    """Counts of comparisons. `new` of the decisions were not in the store; `overtaken` were decided by something else
    since they were queued, and that decision stands."""

    queue: str
    items: int = 0
    gold: int = 0
    ties: int = 0  #: of `gold`
    adjudicated: int = 0  #: of `gold` and `discarded`
    discarded: int = 0  #: people could not decide
    conflicts: int = 0  #: no majority, and no adjudication yet
    waiting: int = 0  #: fewer votes than asked for
    overtaken: int = 0
    revoked: int = 0  #: decided by this queue before, but votes were taken back since: pending now
    new: int = 0


def _decision(queue: str, comparison_id: str, result: VoteResult) -> Decision | None:
    """None for a conflict."""
    if result.outcome is None or result.outcome == ANSWERED:
        return None
    counts = Counter(vote.outcome for vote in result.votes if vote.outcome is not None)
    listed = ", ".join(f"{_NAMES[o]} {n}" for o, n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    if (by := result.adjudication) is not None:
        rule, sight = ADJUDICATED, "after seeing" if by.role == "open" else "without seeing"
        reason = f"queue {queue}: {by.annotator} adjudicated {sight} the votes ({listed})"
    else:
        rule = PEOPLE_MAJORITY
        reason = f"queue {queue}: {len(result.deciding)} of {len(result.votes)} people ({listed})"
    basis = basis_of(result)
    if result.outcome == "undecided":
        rationales = Counter(vote.rationale for vote in result.deciding if vote.rationale).most_common(1)
        reason += f"; {rationales[0][0]}" if rationales else ""
        return Decision(comparison_id, "discarded", None, UNDECIDED, reason, basis=basis)
    return Decision(comparison_id, "gold", result.outcome, rule, reason, result.margin, basis=basis)


def resolve_queue(
    workspace: Workspace,
    name: str,
    run_id: str | None,
    *,
    least_votes: int | None = None,
    dry_run: bool = False,
    only: Collection[str] | None = None,
) -> ResolutionReport:
    """Decide every comparison whose votes suffice, or `only` these (not of rankings). Run again it writes only what has
    changed.

    `least_votes`: default what the queue asks for, or 2 where everyone labels everything. Raises BusyError while
    another process holds the store.
    """
    with AnnotationService(workspace):
        pass  # delivers to the journal what a crash left in the outbox
    with open_ledger(workspace) as ledger:
        queue = find_queue(ledger, name)
        least = least_votes if least_votes is not None else (2 if queue.overlap == "all" else queue.overlap)
        if least < 1:
            raise BadInputError("a decision needs at least one vote", field="least_votes")
        votes = [vote for vote in queue_votes(ledger, queue.name) if vote.check_label is None]
        sync_events(workspace, ledger)
    fold(workspace)  # the judgments before a decision are what it rests on
    items = queue.items
    with workspace.store.unit() as db:
        if (question := _question(db, queue.id)) == "ranking":
            votes, items = _ranking_votes(db, queue.id, queue.name), _ranked_pairs(db, queue.id)
            if only is not None:
                raise BadInputError("rankings are decided all at once")
        elif question is not None:
            raise BadInputError(
                f"queue {queue.name!r} asks of single responses: there is nothing to resolve, its labels count as they "
                "are, an adjudicator's before others; `assay data export --format ratings`, `steps` or `turns` "
                f"writes them, `assay queue agreement {queue.name}` compares them"
            )
    if only is not None:
        votes, items = [vote for vote in votes if vote.comparison_id in only], len(only)
    settled = [
        _decision(queue.name, comparison, result)
        for comparison, on_pair in sorted(by_comparison(votes).items())
        if (result := result_of(on_pair, least=least)) is not None
    ]
    decisions = [decision for decision in settled if decision is not None]
    conflicts = len(settled) - len(decisions)
    with workspace.store.unit() as db:
        revoked = _revoked(db, queue.id, queue.name, {d.comparison_id for d in decisions})
        revoked = [decision for decision in revoked if only is None or decision.comparison_id in only]
        overtaken = _overtaken(db, queue.id, decisions)
        standing = [d for d in decisions if d.comparison_id not in overtaken]
        new = 0 if dry_run else _write(db, queue.id, standing + revoked, run_id)
    return ResolutionReport(
        queue=queue.name,
        items=items,
        gold=sum(d.pool == "gold" for d in standing),
        ties=sum(d.label == "tie" for d in standing),
        adjudicated=sum(f" {ADJUDICATED} " in d.reason for d in standing),
        discarded=sum(d.pool == "discarded" for d in standing),
        conflicts=conflicts,
        waiting=items - len(decisions) - conflicts,
        overtaken=len(overtaken),
        revoked=len(revoked),
        new=new,
    )


def _question(db: Connection, queue_id: str) -> str | None:
    """What a queue asks of responses or lists; None where it asks of pairs."""
    row = db.execute("SELECT payload ->> 'question' FROM queue_tasks WHERE queue_id = ? LIMIT 1", [queue_id]).fetchone()
    return None if row is None else str(row[0])


def _ranked_pairs(db: Connection, queue_id: str) -> int:
    """How many pairs of responses the queue's lists have, those of gold checks aside."""
    row = db.execute(
        """SELECT sum(n * (n - 1) // 2)::BIGINT FROM (SELECT json_array_length(payload -> 'response_ids') AS n
           FROM queue_tasks WHERE queue_id = ? AND (payload -> 'known') IS NULL)""",
        [queue_id],
    ).fetchone()
    return int(row[0] or 0) if row else 0


def _ranking_votes(db: Connection, queue_id: str, name: str) -> list[QueueVote]:
    """Each person's standing judgments of the pairs of the lists they ranked, in the order they were given."""
    rows = db.execute(
        """SELECT j.judgment_id, j.comparison_id, n.name, j.answer, j.rationale, epoch(j.created_at),
                  CASE given.role WHEN 'adjudication:blind' THEN 'blind' WHEN 'adjudication:open' THEN 'open'
                       ELSE 'vote' END
           FROM (SELECT DISTINCT annotator_id, role, item, coalesce(role, 'queue') || '/' || queue || '/' || attempt
                        AS origin
                 FROM queue_answers WHERE queue = $name) given
           JOIN queue_tasks t ON t.queue_id = $queue AND t.item = given.item AND (t.payload -> 'known') IS NULL
           JOIN standing_judgments j USING (annotator_id, origin)
           JOIN comparisons c ON c.comparison_id = j.comparison_id AND c.prompt_id = given.item
           JOIN annotators n USING (annotator_id)
           ORDER BY j.created_at, j.judgment_id""",
        {"queue": queue_id, "name": name},
    ).fetchall()
    return [
        QueueVote(judgment, comparison, person, answer, rationale=rationale, at=at, role=role)
        for judgment, comparison, person, answer, rationale, at, role in rows
    ]


def _overtaken(db: Connection, queue_id: str, decisions: Sequence[Decision]) -> set[str]:
    """Comparisons that something else has decided since they were queued."""
    rows = db.execute(
        """SELECT d.comparison_id
           FROM queues q, current_decisions d LEFT JOIN queue_items i
             ON i.queue_id = $queue AND i.comparison_id = d.comparison_id
           WHERE q.queue_id = $queue  -- a pair of a ranking has no item of its own
             AND if(i.queue_id IS NULL, d.created_at > q.created_at, d.position IS DISTINCT FROM i.basis)
             AND d.position NOT IN (SELECT position FROM queue_decisions WHERE queue_id = $queue)""",
        {"queue": queue_id},
    ).fetchall()
    return {row[0] for row in rows} & {d.comparison_id for d in decisions}


def _revoked(db: Connection, queue_id: str, name: str, decided: set[str]) -> list[Decision]:
    """The queue's own decisions in force whose votes no longer suffice."""
    rows = db.execute(
        """SELECT comparison_id FROM queue_decisions q JOIN current_decisions d USING (comparison_id, position)
           WHERE q.queue_id = ? AND d.pool <> 'pending' ORDER BY comparison_id""",
        [queue_id],
    ).fetchall()
    reason = f"queue {name}: votes were taken back, and those that stand do not decide"
    return [Decision(row[0], "pending", None, REVOKED, reason, basis=()) for row in rows if row[0] not in decided]


def _write(db: Connection, queue_id: str, decisions: list[Decision], run_id: str | None) -> int:
    """Returns how many decisions were new."""
    import pyarrow as pa

    new = insert_decisions(db, decisions, run_id)
    table = pa.table({"comparison_id": pa.array([d.comparison_id for d in decisions], pa.string())})
    with registered(db, "resolved", table):
        db.execute(
            """INSERT INTO queue_decisions
               SELECT ?, comparison_id, d.position FROM resolved JOIN current_decisions d USING (comparison_id)
               ON CONFLICT DO NOTHING""",
            [queue_id],
        )
    if new:
        record_event(db, queue_id, "resolved", {"decisions": new}, run_id)
    if run_id is not None:
        db.execute("INSERT INTO run_links VALUES (?, 'input', 'queue', ?) ON CONFLICT DO NOTHING", [run_id, queue_id])
    return new
