"""The people of a loop: asked through a queue, or played by judges that hold recorded or simulated votes.

Covers: the protocol, both kinds, and what several votes on one comparison come to. Leaves out: queues
(`assay_pipelines.annotation`), what becomes of the outcome (`stage1.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from assay.domain import TIES
from assay.runs.progress_bar import progress_bar
from assay.workspace import Workspace
from assay_pipelines.curation.loop.state import PausedError
from assay_pipelines.judging.annotators import annotator_of
from assay_pipelines.judging.asking import ask, opinions
from assay_pipelines.judging.budget import Spending
from assay_pipelines.judging.judge import Judge, Question

#: What people's votes on one comparison come to. `undecided`: they cannot tell; `conflict`: no majority among them.
Verdict: TypeAlias = Literal["A", "B", "tie", "undecided", "conflict"]


@dataclass(frozen=True)
class PeopleAnswer:
    """`votes`: answer -> people who gave it. `adjudicator`: who settled a conflict of theirs."""

    verdict: Verdict
    votes: dict[str, int]
    adjudicator: str | None = None

    @property
    def said(self) -> str:
        votes = ", ".join(f"{answer} {number}" for answer, number in sorted(self.votes.items()))
        return votes if self.adjudicator is None else f"{votes}; adjudicated by {self.adjudicator}: {self.verdict}"


def resolve(votes: Sequence[str]) -> PeopleAnswer:
    """A label needs more than half of the votes; both good and both bad are ties; a majority of skips is undecided."""
    counts = Counter(votes)
    merged = Counter("tie" if vote in TIES else vote for vote in votes)
    answer, number = merged.most_common(1)[0]
    verdict: Verdict = "conflict"
    if 2 * number > len(votes):
        verdict = "undecided" if answer == "skip" else answer  # type: ignore[assignment]
    return PeopleAnswer(verdict, dict(counts))


@dataclass(frozen=True)
class Collected:
    """Answers by comparison; `open`: comparisons that people have not finished."""

    answers: Mapping[str, PeopleAnswer]
    open: int
    asked: int


class People(Protocol):
    """Asks the same questions again without doubling anything, so that a loop can be run again while they answer."""

    def ask(
        self, name: str, questions: Sequence[Question], why: Mapping[str, Mapping[str, Any]], run_id: str
    ) -> Collected:
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
    ) -> Collected:
        for judge in self.judges:
            with progress_bar(f"asking {annotator_of(judge).name}", len(questions), unit="questions") as advance:
                told = ask(self.workspace, judge, questions, run_id, budget=self.spending, advance=advance)
            if told.stopped is not None:
                raise PausedError(stopped=told.stopped)
        found = opinions(
            self.workspace, [q.comparison_id for q in questions], [annotator_of(j).id for j in self.judges]
        )
        answers = {
            comparison: resolve([opinion.answer for opinion in given.values()])
            for comparison, given in found.items()
            if given
        }
        return Collected(answers, open=0, asked=len(questions))


@dataclass(frozen=True)
class QueuedPeople:
    """People who answer through a queue (`assay annotate`, the web page). `overlap`: different people an item needs."""

    workspace: Workspace
    overlap: int = 1
    gold_checks: float = 0.1
    seed: int = 0

    def ask(
        self, name: str, questions: Sequence[Question], why: Mapping[str, Mapping[str, Any]], run_id: str
    ) -> Collected:
        from assay.annotation.vote_journal import fold
        from assay.data.response_checks import load_response_checks
        from assay_pipelines.annotation.items import QueueItem
        from assay_pipelines.annotation.queues import adjudications, collected, create_queue

        by_id = {q.comparison_id: q for q in questions}
        urgent = [c for c in why if c in by_id]
        checks = load_response_checks(self.workspace, urgent)
        items = [
            QueueItem(
                c,
                float(len(urgent) - place),
                by_id[c].attributes,
                pre_verification=checks[c].payload() if c in checks else {},
                reason=_reason(why[c]),
            )
            for place, c in enumerate(urgent)
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
        votes = collected(self.workspace, name, complete=True)
        answers = {
            comparison: resolve(["skip" if vote.outcome == "undecided" else vote.answer for vote in given])
            for comparison, given in votes.items()
            if comparison in by_id
        }
        for comparison, vote in adjudications(self.workspace, name).items():
            said = answers.get(comparison)
            if said is not None and said.verdict == "conflict" and vote.outcome is not None:
                answers[comparison] = PeopleAnswer(vote.outcome, said.votes, vote.annotator)
        return Collected(answers, open=len(items) - len(answers), asked=len(items))


def _reason(why: Mapping[str, Any]) -> str:
    """For the person: nothing that tells which answer anybody expects."""
    if why.get("seed"):
        return "part of the seed"
    near = int(why.get("errors_near", 1))
    return f"near {near} labelled comparison{'s' if near > 1 else ''} that the reward model gets wrong or is unsure of"
