"""Two models behind one name during a swap.

Covers: which model scores a request, which items both score, failures of the new model, the report on both. Leaves out:
loading and unloading them (`lifecycle`), the second score (`shadow`).

Shadow: every client gets the old model's scores. Canary: a share of the prompts gets the new model's, and all responses
to one prompt, in any request, get the scores of one model, because rewards are comparable within a prompt only. The
prompt of a conversation that arrives rendered is not known: the old model scores it in either mode.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from assay.score import Score, ScoreResult
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import ScoreRequest, ScoreResponse
from assay_serving.server.metrics.engine_metrics import EngineMetrics
from assay_serving.server.models.served_model import ServedModel
from assay_serving.server.rollout.agreement import ModelAgreement, PairedScores, agreement
from assay_serving.server.rollout.shadow import ShadowScorer, group_key, in_share, item_key
from assay_serving.server.rollout.swap_policy import Condition, SwapPolicy, check_conditions

ABORT_AFTER = 20  #: items of the new model, before its failures count


class Swap:
    """Serves a name while `new` may take over from `old`. Used on the event loop only."""

    def __init__(self, old: ServedModel, new: ServedModel, policy: SwapPolicy, metrics: EngineMetrics) -> None:
        self.old = old
        self.new = new
        self.policy = policy
        self.pairs = PairedScores()
        self.changed = asyncio.Event()  #: something was scored since it was last cleared
        self.latest: ModelAgreement | None = None  #: as last computed
        self._shadow = ShadowScorer(self._busy, self._compared)
        self._metrics = metrics
        self._started = time.monotonic()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._of = {old: _Since(old, metrics), new: _Since(new, metrics)}

    @property
    def live(self) -> ServedModel:
        return self.old

    def start(self) -> None:
        self._shadow.start()

    async def stop(self) -> None:
        """Stop comparing; both models finish what is in flight."""
        await self._shadow.stop()
        self.changed.set()  # a waiting task must not keep both models alive

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        """See `ScoringBackend.score`."""
        chosen = self._chosen(request.items)
        try:
            if self.policy.mode != "canary" or not any(chosen) or not self.new.able:
                response = await self.old.score(request)
                self._offer(self.new, request.items, response.results, chosen)
            elif all(chosen):
                response = await self.new.score(request)
                self._offer(self.old, request.items, response.results, chosen)
            else:
                response = await self._score_by_both(request, chosen)
        finally:
            self.changed.set()  # also after a failure of the new model
        return response

    def failure_excess(self) -> float:
        """How much more often the new model fails than the old one since the swap began; 0 while too few items show."""
        old, new = self._of[self.old], self._of[self.new]
        return new.failure_rate - old.failure_rate if new.items >= ABORT_AFTER else 0.0

    async def compare(self) -> ModelAgreement | None:
        """Of the latest pairs, computed off the event loop; None while there is none."""
        groups, old, new = self.pairs.columns()
        self.latest = await asyncio.to_thread(agreement, groups, old, new) if groups else None
        return self.latest

    def conditions(self) -> list[Condition]:
        """By `latest`."""
        new = self._of[self.new]
        return check_conditions(
            self.policy.promote_when,
            self.latest,
            failed=new.failure_rate,
            truncated=self.new.statistics.shares().get("truncated", 0.0),
        )

    @property
    def dropped(self) -> int:
        return self._shadow.dropped

    def report(self) -> dict[str, Any]:
        """JSON-ready, by `latest`."""
        return {
            "name": self.old.name,
            **self.policy.to_dict(),
            "started_at": self._started_at,
            "seconds": round(time.monotonic() - self._started, 3),
            "compared": self.pairs.total,
            "waiting": self._shadow.waiting,
            "dropped": self._shadow.dropped,
            "conditions": [condition.to_dict() for condition in self.conditions()],
            "agreement": self.latest.to_dict() if self.latest is not None else None,
            "old": self._of[self.old].to_dict(),
            "new": self._of[self.new].to_dict(),
        }

    def _busy(self) -> int:
        return self.old.in_flight + self.new.in_flight - self._shadow.in_call

    def _chosen(self, items: Sequence[ScoreItem]) -> list[bool]:
        """Of each item whether its prompt belongs to the share."""
        salt, share = self.new.info.version, self.policy.share
        chosen: list[bool] = []
        before: ScoreItem | None = None
        for item in items:
            if item.rendered is not None and self.policy.mode == "canary":
                chosen.append(False)
            elif before is not None and item.prompt is before.prompt and item.rendered is before.rendered is None:
                chosen.append(chosen[-1])
            else:
                chosen.append(in_share(item, salt, share))
            before = item
        return chosen

    async def _score_by_both(self, request: ScoreRequest, chosen: list[bool]) -> ScoreResponse:
        parts = [[n for n, is_chosen in enumerate(chosen) if is_chosen is side] for side in (False, True)]
        requests = [replace(request, items=tuple(request.items[n] for n in part)) for part in parts]
        with ExitStack() as stack:  # hold both until the tasks start: neither may retire before
            for model in (self.old, self.new):
                stack.enter_context(model.hold())
            tasks = [asyncio.create_task(self.old.score(requests[0])), asyncio.create_task(self.new.score(requests[1]))]
            try:
                responses = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        results: list[ScoreResult | None] = [None] * len(chosen)
        for part, response in zip(parts, responses, strict=True):
            for n, result in zip(part, response.results, strict=True):
                results[n] = result
        complete = tuple(result for result in results if result is not None)
        self._offer(self.old, request.items, complete, chosen)
        versions = "+".join(response.version for response in responses)
        return ScoreResponse(self.old.name, versions, complete, sum(response.cached for response in responses))

    def _offer(
        self, model: ServedModel, items: Sequence[ScoreItem], results: Sequence[ScoreResult], chosen: list[bool]
    ) -> None:
        selected = [n for n, is_chosen in enumerate(chosen) if is_chosen]
        if selected and model.able:
            self._shadow.offer(model, [items[n] for n in selected], [results[n] for n in selected])

    def _compared(self, item: ScoreItem, returned: ScoreResult, other: ScoreResult) -> None:
        old, new = (other, returned) if self.policy.mode == "canary" else (returned, other)
        if isinstance(old, Score) and isinstance(new, Score):
            self.pairs.add(item_key(item), group_key(item), old.reward, new.reward)
        self.changed.set()


class _Since:
    """What a model did since the swap began."""

    def __init__(self, model: ServedModel, metrics: EngineMetrics) -> None:
        self._model = model
        self._metrics = metrics
        self._items, self._failed = model.statistics.items, model.statistics.failed
        self._work = metrics.engine_work(model.queue.name)

    @property
    def items(self) -> int:
        return self._model.statistics.items - self._items

    @property
    def failed(self) -> int:
        return self._model.statistics.failed - self._failed

    @property
    def failure_rate(self) -> float:
        return self.failed / self.items if self.items else 0.0

    def to_dict(self) -> dict[str, Any]:
        """`engine_seconds_per_item`: of engine calls alone, so that queueing and the cache do not distort it."""
        work = self._metrics.engine_work(self._model.queue.name)
        seconds, items = (now - before for now, before in zip(work, self._work, strict=True))
        info = self._model.info
        return {
            "version": info.version,
            "kind": info.kind,
            "plan": self._model.plan.public_settings() if self._model.plan is not None else None,
            "items": self.items,
            "failed": self.failed,
            "in_flight": self._model.in_flight,
            "engine_seconds_per_item": seconds / items if items else None,
            "scores": self._model.statistics.to_dict(),
        }
