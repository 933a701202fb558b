"""The annotators of a loop: asked through a queue, or played by judges with recorded or simulated votes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.runs.progress_bar import progress_bar
from assay.workspace import Workspace
from assay_pipelines.annotation.votes import QueueVote, VoteResult, result_of
from assay_pipelines.curation.loop.state import PausedError
from assay_pipelines.judging.asking import StoredOpinion, ask, opinions
from assay_pipelines.judging.judge import Judge
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.questions import Question


def vote_counts(result: VoteResult) -> str:
    """How many annotators gave each answer, and who adjudicated, in words."""
    counts = Counter(vote.answer for vote in result.votes)
    words = ", ".join(f"{answer} {number}" for answer, number in sorted(counts.items()))
    if (by := result.adjudication) is not None:
        words += f"; adjudicated by {by.annotator}: {by.outcome}"
    return words


@dataclass(frozen=True)
class CollectedAnswers:
    """Results by comparison; `open`: comparisons that annotators have not finished."""

    answers: Mapping[str, VoteResult]
    open: int
    questions: int


class People(Protocol):
    """Asks the same questions again without doubling anything, so that a loop can be run again while they answer."""

    def ask(
        self, name: str, questions: Sequence[Question], why: Mapping[str, Mapping[str, Any]], run_id: str
    ) -> CollectedAnswers:
        """`name`: of the queue. `why`: comparison id -> why it is asked, most urgent first."""


@dataclass(frozen=True)
class JudgedPeople:
    """Every judge answers every question, as one person each. A judge without a vote on a comparison is left out.
    `spending`: the loop's budget, for judges that cost something."""

    workspace: Workspace
    judges: Sequence[Judge]
    spending: Spending | None = None

    def ask(
        self, name: str, questions: Sequence[Question], why: Mapping[str, Mapping[str, Any]], run_id: str
    ) -> CollectedAnswers:
        for judge in self.judges:
            with progress_bar(f"asking {annotator_of(judge).name}", len(questions), unit="questions") as advance:
                report = ask(self.workspace, judge, questions, run_id, budget=self.spending, advance=advance)
            if report.stopped is not None:
                raise PausedError(stopped=report.stopped)
        by_comparison = opinions(
            self.workspace, [q.comparison_id for q in questions], [annotator_of(j).id for j in self.judges]
        )
        answers = {
            comparison: result
            for comparison, opinions_on_pair in by_comparison.items()
            if (result := result_of([_vote(comparison, *one) for one in opinions_on_pair.items()], least=1)) is not None
        }
        return CollectedAnswers(answers, open=0, questions=len(questions))


@dataclass(frozen=True)
class QueuedPeople:
    """People who answer through a queue (`assay annotate`, the web page). `overlap`: different people an item needs."""

    workspace: Workspace
    overlap: int = 1
    gold_checks: float = 0.1
    seed: int = 0

    def ask(
        self, name: str, questions: Sequence[Question], why: Mapping[str, Mapping[str, Any]], run_id: str
    ) -> CollectedAnswers:
        from assay.annotation.vote_journal import fold
        from assay.data.response_checks import load_response_checks
        from assay_pipelines.annotation.items import QueueItem
        from assay_pipelines.annotation.queues import collected, create_queue

        by_id = {q.comparison_id: q for q in questions}
        urgent = [c for c in why if c in by_id]
        checks = load_response_checks(self.workspace, urgent)
        items = [
            QueueItem(
                c,
                float(len(urgent) - rank),
                by_id[c].attributes,
                pre_verification=checks[c].payload() if c in checks else {},
                reason=_reason(why[c]),
            )
            for rank, c in enumerate(urgent)
        ]
        create_queue(
            self.workspace,
            name,
            items,
            overlap=self.overlap,
            gold_checks=self.gold_checks,
            run_id=run_id,
            seed=self.seed,
        )
        fold(self.workspace)  # the votes before the decisions that rest on them
        answers = {
            comparison: result
            for comparison, votes in collected(self.workspace, name).items()
            if comparison in by_id and (result := result_of(votes, least=self.overlap)) is not None
        }
        return CollectedAnswers(answers, open=len(items) - len(answers), questions=len(items))


def _vote(comparison_id: str, annotator: str, opinion: StoredOpinion) -> QueueVote:
    """A recorded annotator's opinion as a vote. A skip counts as undecided."""
    skipped = "cannot_decide" if opinion.answer == "skip" else opinion.rationale
    return QueueVote(
        opinion.judgment_ids[0], comparison_id, annotator, opinion.answer, opinion.strength, opinion.confidence, skipped
    )


def _reason(why: Mapping[str, Any]) -> str:
    """For the person: nothing that tells which answer anybody expects."""
    if why.get("seed"):
        return "part of the seed"
    if "contradicts" in why or "posterior" in why:
        return "chosen for a second look"
    near = int(why.get("errors_near", 1))
    return f"near {near} labelled comparison{'s' if near > 1 else ''} that the reward model gets wrong or is unsure of"
