"""One loaded model behind its queue, from its first request to the last one it owes an answer.

Covers: requests in flight, statistics of its scores, its name in the metrics. Leaves out: which models there are
(`roster`), batching (`coalescing`), replacing one by another (`swap`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from assay.errors import BackendError, LateError
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, Scorer
from assay_serving.server.batching.batcher import Coalescer
from assay_serving.server.cache.cached_scoring import CachedScoring
from assay_serving.server.cache.memory_cache import ScoreCache
from assay_serving.server.core.scoring_backend import ScoreAnswer, ScoreRequest
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.http_metrics import EngineMetrics
from assay_serving.server.rollout.score_statistics import ScoreStatistics

CANDIDATE = "@candidate"  #: after the name, in metrics, of a model that is to take over the name


class ServedModel:
    """`plan`: how to load it again; None for a scorer that was given as it is. `candidate`: counted apart from the
    model that has the name, until `take_over`. `cache`: of scores, shared by all models; None: nothing is kept."""

    def __init__(
        self,
        name: str,
        scorer: Scorer,
        settings: ServerSettings,
        metrics: EngineMetrics,
        plan: ModelConfig | None = None,
        *,
        candidate: bool = False,
        cache: ScoreCache | None = None,
    ) -> None:
        self.name = name
        self.plan = plan
        self.statistics = ScoreStatistics()
        self.queue = Coalescer(name + CANDIDATE if candidate else name, scorer, settings, metrics)
        self._scoring = CachedScoring(
            self.queue, ScoreCache(entries=0, max_bytes=0) if cache is None else cache, metrics
        )
        self._metrics = metrics
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def live(self) -> ServedModel:
        return self

    def start(self) -> None:
        self.queue.start()

    def take_over(self) -> None:
        """Count under the name itself from now on; a candidate's own counters go."""
        apart, self.queue.name = self.queue.name, self.name
        self._metrics.watch_queue(self.name, lambda: self.queue.waiting)
        self._metrics.forget(apart)

    def answers_to(self, alias: str) -> bool:
        """Whether a request that names this alias means this model."""
        return self.plan is not None and self.plan.answers_to(alias)

    @property
    def alive(self) -> bool:
        return self.queue.alive

    @property
    def able(self) -> bool:
        """Whether a request would be scored now: it has a worker, and its engine comes back from its calls."""
        return self.queue.alive and not self.queue.stuck

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
        started = time.perf_counter()
        with self.hold():
            try:
                answer = await self._answer(request)
            except BackendError as error:
                self.statistics.lose(len(request.items), error.code)
                raise
            if any(result.model != self.name for result in answer.results):  # a candidate counts under another
                results = tuple(replace(result, model=self.name) for result in answer.results)
                answer = replace(answer, results=results)
            self.statistics.add(answer.results, time.perf_counter() - started)
            return answer

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Counted as in flight meanwhile: it does not retire."""
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def _answer(self, request: ScoreRequest) -> ScoreAnswer:
        try:
            async with asyncio.timeout(request.timeout_s):
                results, cached = await self._scoring.answer(request)
        except TimeoutError:
            raise LateError(f"not scored within {request.timeout_s:g} s") from None
        return ScoreAnswer(self.name, self.queue.scorer.info.version, tuple(results), cached)

    async def retire(self) -> None:
        """Answer what is in flight, then stop. The caller sees to it that nothing new comes."""
        await self._idle.wait()
        await self.stop()

    async def stop(self) -> None:
        """Drop what waits."""
        await self.queue.stop()
