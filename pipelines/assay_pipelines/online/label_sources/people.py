"""People as label source: an annotation queue that grows as the loop goes on; votes are taken as they come.

Covers: queueing the pairs, the majority of the votes asked for. Leaves out: the queue itself and how people vote
(`assay annotate`, `assay web`), adjudication, which counts here as it does everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from assay.annotation.vote_journal import fold
from assay.errors import BusyError
from assay.runs.record import Run
from assay.settings import CheckedSettings
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import collected, create_queue
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.annotation.votes import VoteResult, result_of
from assay_pipelines.online.label_sources.kind import Answer, AskedPair, affordable_pairs

REASON = "Which of two responses of a policy in training is better tells its reward most."


@dataclass(frozen=True)
class PeoplesQueue(CheckedSettings):
    """`queue`: its name; None: loop-NAME. `overlap`: people per pair. `gold_checks`: share of known answers mixed in.
    `price`: of a vote."""

    workspace: Workspace
    loop: str
    queue: str | None = None
    overlap: Annotated[int, Ge(1)] = 1
    gold_checks: Annotated[float, Ge(0)] = 0.0
    guideline: str = ""
    project: str | None = None
    price: Annotated[float, Ge(0)] = 0.0

    waits = True

    @property
    def name(self) -> str:
        return f"queue {self.queue_name}"

    @property
    def price_of_pair(self) -> float:
        return self.price * self.overlap

    @property
    def queue_name(self) -> str:
        return self.queue or f"loop-{self.loop}"

    def ask(self, pairs: Sequence[AskedPair], run: Run, *, money: float | None) -> list[Answer]:
        """Votes that the queue has already are answers at once. Money that does not pay for all pays for the first."""
        affordable = affordable_pairs(len(pairs), self.price_of_pair, money)
        items = [QueueItem(pair.comparison_id, reason=REASON, opinions=()) for pair in pairs[:affordable]]
        if items:
            create_queue(
                self.workspace,
                self.queue_name,
                items,
                overlap=self.overlap,
                gold_checks=self.gold_checks,
                run_id=run.id,
                guideline=self.guideline,
                project=self.project,
            )
        unasked = [Answer(pair.comparison_id, None, problem="over budget") for pair in pairs[affordable:]]
        return [*self.collect([item.comparison_id for item in items], run), *unasked]

    def collect(self, waiting: Sequence[str], run: Run) -> list[Answer]:
        """Of pairs with enough votes. A conflict waits for more votes or an adjudicator."""
        votes = collected(self.workspace, self.queue_name) if waiting else {}
        results = {comparison: result_of(votes.get(comparison, ()), least=self.overlap) for comparison in waiting}
        ready = {c: result for c, result in results.items() if result is not None and result.outcome is not None}
        if not ready:
            return []
        try:
            with AnnotationService(self.workspace):
                pass  # delivers to the journal what a crash left in the outbox
            fold(self.workspace)  # the judgments that the answers rest on
        except BusyError:
            return []
        return [self._answer(comparison, result) for comparison, result in ready.items()]

    def _answer(self, comparison: str, result: VoteResult) -> Answer:
        outcomes = {vote.outcome for vote in result.votes}
        judgments = tuple(vote.judgment_id for vote in dict.fromkeys((*result.votes, *result.deciding)))
        label = result.outcome if result.outcome in ("A", "B", "tie") else None
        return Answer(
            comparison,
            label,
            judgments,
            self.price * len(result.votes),
            problem="" if label else "people could not decide",
            contradicts={"A", "B"} <= outcomes,
        )
