"""Quality of judges, people and sources in one list, by the same measures.

Leaves out: the measures (`assay_pipelines.judging.reporting`, `assay_pipelines.annotation.quality.annotators`,
`assay_pipelines.curation.source_errors`).
"""

from assay.workspace import Workspace
from assay_pipelines.annotation.quality.annotators import AnnotatorQuality, annotator_quality
from assay_pipelines.annotation.queues import list_queues
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.votes import queue_votes
from assay_pipelines.curation.source_errors import AnswerErrors, answer_errors
from assay_pipelines.judging.reporting import JudgeReport, judges_report
from assay_web.curate.replies import (
    NOTHING,
    AnnotatorFigures,
    CountedShare,
    FailureCount,
    JudgesAgreement,
    QualityReply,
    counted_share,
)

ANSWERED = "answered"


def quality_of(workspace: Workspace) -> QualityReply:
    """Reads the store and the queues' votes."""
    report = judges_report(workspace)
    with workspace.store.unit() as db:
        against_gold = {(errors.kind, errors.annotator): errors for errors in answer_errors(db)}
    judges = [_judge(judge) for judge in report.judges]
    people = [_person(person, against_gold.get(("human", person.annotator))) for person in _people(workspace)]
    listed = {(one.kind, one.name) for one in (*judges, *people)}
    unlisted = [_other(errors) for key, errors in against_gold.items() if key not in listed]
    people += [one for one in unlisted if one.kind == "human"]
    agreements = [
        JudgesAgreement(first=one.first, second=one.second, same=counted_share(one.agreed, one.both), kappa=one.kappa)
        for one in report.agreements
    ]
    sources = [one for one in unlisted if one.kind != "human"]
    return QualityReply(annotators=[*people, *judges, *sources], agreements=agreements)


def _people(workspace: Workspace) -> list[AnnotatorQuality]:
    """Of the votes of all queues together."""
    queues = list_queues(workspace)
    if not queues:
        return []
    ledger = open_ledger(workspace)
    try:
        votes = [vote for queue in queues for vote in queue_votes(ledger, queue.name)]
    finally:
        ledger.close()
    return annotator_quality(votes)


def _judge(judge: JudgeReport) -> AnnotatorFigures:
    failures = [
        FailureCount(outcome=outcome, attempts=number)
        for outcome, number in judge.outcomes.items()
        if outcome != ANSWERED
    ]
    return AnnotatorFigures(
        kind=judge.kind,
        name=judge.name,
        opinions=judge.opinions,
        gold=counted_share(judge.gold.hits, judge.gold.of),
        first_shown=counted_share(judge.first_shown.hits, judge.first_shown.of),
        consistent=counted_share(judge.consistent.hits, judge.consistent.of),
        ties=judge.ties,
        skips=judge.skips,
        failures=failures,
        calls=judge.calls,
        tokens=judge.tokens_in + judge.tokens_out,
        cost=judge.cost,
        seconds=judge.seconds,
    )


def _person(person: AnnotatorQuality, gold: AnswerErrors | None) -> AnnotatorFigures:
    return AnnotatorFigures(
        kind="human",
        name=person.annotator,
        opinions=person.votes,
        gold=_sides(gold),
        checks=counted_share(person.passed, person.checks),
        first_shown=counted_share(person.first, person.preferred),
        agreement=counted_share(person.agreed, person.compared),
        ties=person.ties,
        skips=person.skips,
        seconds=person.median_seconds,
        flags=list(person.flags),
    )


def _other(errors: AnswerErrors) -> AnnotatorFigures:
    """An annotator known only by judgments on gold."""
    return AnnotatorFigures(
        kind=errors.kind,
        name=errors.annotator,
        opinions=errors.compared,
        gold=_sides(errors),
        ties=errors.tie_for_side,
        skips=errors.skipped,
    )


def _sides(errors: AnswerErrors | None) -> CountedShare:
    return counted_share(errors.right_sides, errors.right_sides + errors.flipped) if errors else NOTHING
