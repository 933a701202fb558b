"""One loaded model behind its queue, from its first request to the last one it owes an answer.

Leaves out: which models there are (`roster`), batching (`coalescing`), replacing one by another (`swap`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from assay.errors import LateError
from assay_serving.plan import ModelPlan
from assay_serving.scorer import ModelInfo, Scorer
from assay_serving.server.coalescing import Coalescer
from assay_serving.server.host import ScoreAnswer, ScoreRequest
from assay_serving.server.metrics import EngineMetrics
from assay_serving.server.settings import ServerSettings


class ServedModel:
    """`plan`: how to load it again; None for a scorer that was given as it is."""

    def __init__(
        self,
        name: str,
        scorer: Scorer,
        settings: ServerSettings,
        metrics: EngineMetrics,
        plan: ModelPlan | None = None,
    ) -> None:
        self.name = name
        self.plan = plan
        self.queue = Coalescer(name, scorer, settings, metrics)
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def live(self) -> ServedModel:
        return self

    def start(self) -> None:
        self.queue.start()

    @property
    def alive(self) -> bool:
        return self.queue.alive

    @property
    def info(self) -> ModelInfo:
        """`name` is the name it is served under."""
        return replace(self.queue.scorer.info, name=self.name)

    @property
    def in_flight(self) -> int:
        """Requests that have no answer yet."""
        return self._in_flight

    async def answer(self, request: ScoreRequest) -> ScoreAnswer:
        """See `ScoringHost.score`. Counted as in flight from the call on, before anything is awaited."""
        self._in_flight += 1
        self._idle.clear()
        try:
            return await self._answer(request)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def _answer(self, request: ScoreRequest) -> ScoreAnswer:
        pending = self.queue.put(request.items)
        try:
            async with asyncio.timeout(request.timeout_s):
                results = await pending.done
        except TimeoutError:
            raise LateError(f"not scored within {request.timeout_s:g} s") from None
        finally:
            self.queue.drop(pending)
        return ScoreAnswer(self.name, self.queue.scorer.info.version, tuple(results))

    async def retire(self) -> None:
        """Answer what is in flight, then stop. The caller sees to it that nothing new comes."""
        await self._idle.wait()
        await self.stop()

    async def stop(self) -> None:
        """Drop what waits."""
        await self.queue.stop()
