"""How far a queue is and how far its people agree, worked out every few seconds however many ask.

Leaves out: the figures themselves (`assay_pipelines.annotation`).
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Request

from assay.workspace import Workspace
from assay_pipelines.annotation.quality.agreement import AgreementReport, agreement_of_votes
from assay_pipelines.annotation.question_types.question_type import question_of
from assay_pipelines.annotation.queues import QueueProgress, find_queue, progress_of
from assay_pipelines.annotation.recording import Queue
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.votes import queue_votes
from assay_web.service import ServiceNow

T = TypeVar("T")

PROGRESS_S = 2.0
AGREEMENT_S = 5.0
BUSY = 0.05  #: figures of a queue are worked out in at most this share of the time: votes come first
VOTING_S = 600.0  #: who voted or got an item within it counts as active
RESAMPLES = 200  #: a live interval may be a little rough; `assay queue agreement` takes 1,000


@dataclass
class _QueueCache(Generic[T]):
    """The last value of each queue, and until when it is good. While one thread works out a new one, others get the
    old."""

    compute: Callable[[str], T]
    seconds: float
    entries: dict[str, tuple[float, T]] = field(default_factory=dict)
    turns: dict[str, threading.Lock] = field(default_factory=dict)

    def of(self, queue: str) -> T:
        cached = self.entries.get(queue)
        if cached is not None and time.monotonic() < cached[0]:
            return cached[1]
        turn = self.turns.setdefault(queue, threading.Lock())
        if not turn.acquire(blocking=cached is None):
            assert cached is not None
            return cached[1]
        try:
            cached = self.entries.get(queue)
            if cached is None or time.monotonic() >= cached[0]:
                began = time.monotonic()
                value = self.compute(queue)
                ended = time.monotonic()
                self.entries[queue] = cached = (ended + max(self.seconds, (ended - began) / BUSY), value)
            return cached[1]
        finally:
            turn.release()


@dataclass(frozen=True)
class QueueState:
    """`voting`: people who voted or were given an item within the last minutes. `question`: of its items."""

    queue: Queue
    question: str
    progress: QueueProgress
    voting: int


class LiveFigures:
    """Its reads have a connection of their own: they do not keep votes waiting."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._states = _QueueCache(self._read_state, PROGRESS_S)
        self._agreement = _QueueCache(self._read_agreement, AGREEMENT_S)

    def state(self, queue: str) -> QueueState:
        """Raises NotFoundError for an unknown queue."""
        return self._states.of(queue)

    def agreement(self, queue: str) -> AgreementReport:
        return self._agreement.of(queue)

    def forget(self, queue: str) -> None:
        """After a change that its maker should see at once."""
        self._states.entries.pop(queue, None)

    def _read_state(self, queue: str) -> QueueState:
        with open_ledger(self._workspace) as ledger:
            row = find_queue(ledger, queue)
            progress = progress_of(ledger, queue)
            with ledger.reading() as db:
                (voting,) = db.execute(
                    """SELECT count(*) FROM (
                           SELECT annotator FROM votes JOIN items USING (item_id) WHERE queue = :queue AND at > :since
                           UNION SELECT annotator FROM leases JOIN items USING (item_id)
                                 WHERE queue = :queue AND leased_at > :since)""",
                    {"queue": row.name, "since": time.time() - VOTING_S},
                ).fetchone()
                payload = db.execute(
                    "SELECT payload FROM items JOIN payloads USING (item_id) WHERE queue = ? LIMIT 1", (row.name,)
                ).fetchone()
        return QueueState(row, question_of(json.loads(payload[0]) if payload else {}), progress, voting)

    def _read_agreement(self, queue: str) -> AgreementReport:
        with open_ledger(self._workspace) as ledger:
            votes = queue_votes(ledger, find_queue(ledger, queue).name)
        return agreement_of_votes(votes, resamples=RESAMPLES)


async def live_of(request: Request, service: ServiceNow) -> LiveFigures:
    state = request.app.state
    if not hasattr(state, "live_figures"):
        state.live_figures = LiveFigures(service.workspace)
    figures: LiveFigures = state.live_figures
    return figures


#: For routes: `live: LiveNow`.
LiveNow = Annotated[LiveFigures, Depends(live_of)]
