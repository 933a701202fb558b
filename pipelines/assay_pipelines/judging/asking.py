"""Putting questions to a judge, once each, and storing its opinions.

A judge's opinion is ONE row of `judgments` with an empty origin. Where it was merged from several votes, each vote is a
row with the origin `vote//ORDER/SAMPLE`; the view `opinions` is the table without these. Failures are not stored as
judgments.

Answered is what has an opinion of the same annotator (kind, name and the hash of its configuration, prompts included)
on the same comparison. Demonstrations and attributes are not part of it: they change as gold grows, and a resumed pass
must not ask again because of that. Model calls are reused only when every byte is equal (`llm.calls`).
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from assay.domain import Answer, Judgment
from assay.runs.progress_bar import Advance, silent
from assay.store.database import Connection
from assay.store.records import Evidence, insert_demonstrations, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.judging.judge import Judge, JudgeFailure, JudgeResult, OnResult, Opinion, Vote
from assay_pipelines.judging.merging import merge_votes
from assay_pipelines.llm.annotators import Annotator, annotator_of
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.llm.questions import Question
from assay_pipelines.llm.sweep import AskingPass, SweepReport

VOTE = "vote/"
UNASKED = frozenset({"over_budget", "not_asked"})


@runtime_checkable
class SpendingJudge(Protocol):
    """A judge whose answers cost something: it gets the budget and the run that its calls belong to."""

    def judge_within(
        self, questions: Sequence[Question], on_result: OnResult, *, spending: Spending, run_id: str | None
    ) -> str | None:
        """As `Judge.judge`; what is not asked any more fails with `over_budget` or `not_asked`, and it returns why."""


@runtime_checkable
class DemonstratedJudge(Protocol):
    """A judge that shows its model the question's demonstrations."""

    @property
    def most_demonstrations(self) -> int:
        """Of a question, from the first."""


@dataclass(frozen=True, slots=True)
class StoredOpinion:
    """What an annotator concluded of a comparison, as the store has it."""

    answer: Answer
    confidence: float | None
    strength: int | None = None
    rationale: str | None = None
    judgment_ids: tuple[str, ...] = ()  #: of what it was read from


def ask(
    workspace: Workspace,
    judge: Judge,
    questions: Sequence[Question],
    run_id: str | None,
    *,
    budget: Budget | Spending | None = None,
    advance: Advance = silent,
) -> SweepReport:
    """Put to the judge what it has not answered yet. Interrupted or killed, it resumes where it stopped when run again.

    `budget`: a `Spending` carries what earlier passes spent. `advance` gets the number of questions just done, with the
    known ones. Raises AssayError for what concerns all questions alike (the endpoint refuses the key, the store is
    broken); what was answered before is written.
    """
    annotator = annotator_of(judge)
    answered_before = answered(workspace, annotator, [q.comparison_id for q in questions])
    todo = list({q.comparison_id: q for q in questions if q.comparison_id not in answered_before}.values())
    advance(len(questions) - len(todo))
    most = judge.most_demonstrations if isinstance(judge, DemonstratedJudge) else 0
    examples = {q.comparison_id: [d.comparison_id for d in q.demonstrations[:most] if d.comparison_id] for q in todo}

    def write(batch: Sequence[tuple[str, Opinion]]) -> None:
        by_comparison = {c: judgments_of(c, annotator.id, opinion) for c, opinion in batch}
        with workspace.store.unit() as db:
            insert_judgments(db, [j for judgments in by_comparison.values() for j in judgments], run_id)
            insert_demonstrations(db, {judgments[0].id: examples[c] for c, judgments in by_comparison.items()})

    current: AskingPass[tuple[str, Opinion]] = AskingPass(write, budget, advance)

    def put(part: Sequence[Question]) -> str | None:
        seen: set[int] = set()
        why: str | None = None

        def take(index: int, result: JudgeResult) -> None:
            if index in seen:
                raise RuntimeError(f"the judge answered question {index} twice")
            seen.add(index)
            if isinstance(result, JudgeFailure):
                current.add_failure(result.code, was_sent=result.code not in UNASKED)
            else:
                current.add_answer((part[index].comparison_id, result))

        if isinstance(judge, SpendingJudge):
            why = judge.judge_within(part, take, spending=current.spending, run_id=run_id)
        else:
            judge.judge(part, take)
        for index in sorted(set(range(len(part))) - seen):
            take(index, JudgeFailure("no_answer", "the judge gave no result"))
        return why

    current.run(todo, put)
    return current.report(annotator.name, len(answered_before))


def answered(workspace: Workspace, annotator: Annotator, comparison_ids: Sequence[str]) -> set[str]:
    """Those of the comparisons on which this annotator has an opinion. Writes the annotator down if it is new."""
    with workspace.store.unit() as db:
        annotator.write(db)
        rows = db.execute(
            """SELECT DISTINCT comparison_id
               FROM opinions JOIN (SELECT unnest($ids) AS comparison_id) USING (comparison_id)
               WHERE annotator_id = $annotator AND origin = ''""",
            {"ids": list(comparison_ids), "annotator": annotator.id},
        ).fetchall()
    return {row[0] for row in rows}


def opinions(
    source: Workspace | Connection,
    comparison_ids: Sequence[str],
    annotators: Sequence[str] | None = None,
) -> dict[str, dict[str, StoredOpinion]]:
    """comparison id -> annotator id -> its newest opinion, for the given annotator ids (None: everybody's).

    Judges' single votes and votes taken back are left out; comparisons without any opinion are not in the result.
    Opinions of one annotator that are equally new and contradict each other (a source that lists a pair twice) are
    merged like votes.
    """
    with source.store.unit() if isinstance(source, Workspace) else nullcontext(source) as db:
        rows = db.execute(
            """SELECT comparison_id, annotator_id, answer, confidence, strength, rationale, judgment_id,
                      epoch_us(created_at)
               FROM opinions JOIN (SELECT DISTINCT unnest($ids) AS comparison_id) USING (comparison_id)
               WHERE $annotators IS NULL OR list_contains($annotators::VARCHAR[], annotator_id)
               ORDER BY created_at DESC, judgment_id""",
            {"ids": list(comparison_ids), "annotators": None if annotators is None else list(annotators)},
        ).fetchall()
    newest: dict[tuple[str, str], tuple[int, list[StoredOpinion]]] = {}
    for comparison, annotator, answer, confidence, strength, rationale, judgment, at in rows:
        when, held = newest.setdefault((comparison, annotator), (at, []))
        if when == at:
            held.append(StoredOpinion(answer, confidence, strength, rationale, (judgment,)))
    by_comparison: dict[str, dict[str, StoredOpinion]] = {}
    for (comparison, annotator), (_, held) in newest.items():
        by_comparison.setdefault(comparison, {})[annotator] = held[0] if len(held) == 1 else _merged(held)
    return by_comparison


def _merged(held: Sequence[StoredOpinion]) -> StoredOpinion:
    votes = [Vote(o.answer, confidence=o.confidence, rationale=o.rationale, strength=o.strength) for o in held]
    opinion = merge_votes(votes)
    judgment_ids = tuple(judgment for o in held for judgment in o.judgment_ids)
    return StoredOpinion(opinion.answer, opinion.confidence, opinion.strength, opinion.rationale, judgment_ids)


def counted(opinions_on_pair: Iterable[StoredOpinion]) -> list[Evidence]:
    """What a decision that counted these opinions rests on."""
    return [Evidence("counted", judgment) for opinion in opinions_on_pair for judgment in opinion.judgment_ids]


def judgments_of(comparison: str, annotator: str, opinion: Opinion) -> list[Judgment]:
    """The rows of one opinion: itself and, where it was merged from several, its votes."""
    single = opinion.votes[0] if len(opinion.votes) == 1 else None
    timed = [vote.seconds for vote in opinion.votes if vote.seconds is not None]
    rows = [
        Judgment(
            comparison,
            annotator,
            opinion.answer,
            strength=opinion.strength,
            confidence=opinion.confidence,
            rationale=opinion.rationale,
            shown_order=single.shown_order if single else None,
            seconds=sum(timed) if timed else None,
        )
    ]
    if single is None:
        rows += [
            Judgment(
                comparison,
                annotator,
                vote.answer,
                strength=vote.strength,
                confidence=vote.confidence,
                rationale=vote.rationale,
                shown_order=vote.shown_order,
                seconds=vote.seconds,
                origin=f"{VOTE}/{vote.shown_order or '-'}/{vote.sample}",
            )
            for vote in opinion.votes
        ]
    return rows
