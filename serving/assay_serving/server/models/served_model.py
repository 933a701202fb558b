"""One loaded model behind its queue, from its first request to its last response.

Covers: scores from the cache, items that another request is computing already, the rest from the engine; requests in
flight, statistics of the scores, the model's name in the metrics. Leaves out: which models there are
(`model_registry`), batching (`batching.batcher`), the cache (`cache.score_cache`), replacing one model by another
(`rollout.swap`).

Equal items of one request, and of concurrent ones, are computed once. A request waits for an item of another one only
where that costs nothing: not behind a lower priority. If the other request is cancelled, or broke the engine, the item
is scored for this one.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from assay.errors import BackendError, LateError
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer, require_step_reader
from assay_serving.server.batching.batcher import DynamicBatcher
from assay_serving.server.batching.fair_queue import PendingRequest
from assay_serving.server.cache.score_cache import ScoreCache, ScoreKeys
from assay_serving.server.core.scoring_backend import Priority, ScoreRequest, ScoreResponse
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.engine_metrics import EngineMetrics, ScoreStatistics

CANDIDATE = "@candidate"  #: suffix, in metrics, of the name of a model that may take over the name

#: Failures caused by the item: another request would get them too.
_ITEM_FAILURES = ("bad_input", "too_long", "non_finite", "unparsable")
#: Resolves to the result of an item that another request computes, None if that request does not.
_SharedResult: TypeAlias = asyncio.Future[ScoreResult | None]


class ServedModel:
    """`plan`: how to load it again; None for a scorer that was passed in. `candidate`: has counters apart from those of
    the model that has the name, until `take_over`. `cache`: of scores, shared by all models; None: no cache. An engine
    that is not repeatable computes every request."""

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
        self.queue = DynamicBatcher(name + CANDIDATE if candidate else name, scorer, settings, metrics)
        self._cache = ScoreCache(entries=0, max_bytes=0) if cache is None else cache
        self._keys = ScoreKeys.of_engine(scorer)
        self._version = scorer.info.version
        self._computing: dict[bytes, tuple[_Computation, int]] = {}  #: items queued or with the engine, by key
        self._metrics = metrics
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def live(self) -> "ServedModel":
        return self

    def start(self) -> None:
        self.queue.start()

    def take_over(self) -> None:
        """Count under the name itself from now on; the counters of the candidate are removed."""
        candidate = self.queue.name
        self.queue.report_as(self.name)
        self._metrics.remove(candidate)

    def answers_to(self, alias: str) -> bool:
        """Whether a request that names this alias means this model."""
        return self.plan is not None and self.plan.answers_to(alias)

    @property
    def alive(self) -> bool:
        return self.queue.alive

    @property
    def able(self) -> bool:
        """Whether a request would be scored now: the worker runs and the engine returns from its calls."""
        return self.queue.alive and not self.queue.stuck

    @property
    def info(self) -> ModelInfo:
        """`name` is the name it is served under."""
        return replace(self.queue.scorer.info, name=self.name)

    @property
    def in_flight(self) -> int:
        """Requests without a response yet."""
        return self._in_flight

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        """See `ScoringBackend.score`. Counted as in flight from the call on, before anything is awaited.

        Raises BadInputError for responses in steps, where the model reads none.
        """
        started = time.perf_counter()
        if any(item.steps is not None for item in request.items):
            require_step_reader(self.info, request.items)
        with self.hold():
            try:
                try:
                    async with asyncio.timeout(request.timeout_s):
                        results, cached = await self._results(request)
                except TimeoutError:
                    raise LateError(f"not scored within {request.timeout_s:g} s") from None
            except BackendError as error:
                self.statistics.add_failures(len(request.items), error.code)
                raise
            # The engine and the cache know the model by its own name, a candidate's by another one.
            renamed = tuple(r if r.model == self.name else replace(r, model=self.name) for r in results)
            self.statistics.add(renamed, time.perf_counter() - started)
            return ScoreResponse(self.name, self.queue.scorer.info.version, renamed, cached)

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

    async def retire(self) -> None:
        """Answer requests in flight, then stop. The caller makes sure that no new ones arrive."""
        await self._idle.wait()
        await self.stop()

    async def stop(self) -> None:
        """Drop queued requests."""
        await self.queue.stop()

    async def _results(self, request: ScoreRequest) -> tuple[list[ScoreResult], int]:
        """The items' results in order, and how many of them no engine computed for this request.

        Raises BusyError and LateError. Cancelling it drops what is still queued.
        """
        deadline = asyncio.get_running_loop().time() + request.timeout_s
        if self._keys is None:
            pending = self._submit(request.items, request, deadline)
            try:
                return await pending.done, 0
            finally:
                self.queue.cancel(pending)
        keys = self._keys.of(request.items)
        results: dict[bytes, ScoreResult] = {}
        missing: dict[bytes, ScoreItem] = {}
        for key, item in zip(keys, request.items, strict=True):
            if key not in results and key not in missing:
                score = self._cache.get(key)
                if score is None:
                    missing[key] = item
                else:
                    results[key] = score
        from_memory = len(results)
        if missing and (on_disk := self._cache.on_disk(missing)):
            for key, score in (await self._cache.fetch(on_disk)).items():
                results[key] = score
                del missing[key]
        from_disk = len(results) - from_memory
        computed = await self._compute(missing, results, request, deadline) if missing else set()
        in_order = [results[key] for key in keys]
        self._count(keys, in_order, from_memory, from_disk, computed)
        return in_order, len(keys) - len(computed)

    async def _compute(
        self, missing: dict[bytes, ScoreItem], results: dict[bytes, ScoreResult], request: ScoreRequest, deadline: float
    ) -> set[bytes]:
        """Adds the results of the missing items to `results`; returns the keys of those scored for this request."""
        computed: set[bytes] = set()
        not_shared: set[bytes] = set()  # the engine broke, or refused, with another request for these
        while missing:
            to_submit: list[bytes] = []
            shared: list[tuple[bytes, _SharedResult]] = []
            for key in missing:
                other = None if key in not_shared else self._share(key, request.priority)
                if other is None:
                    to_submit.append(key)
                else:
                    shared.append((key, other))
            pending = None
            if to_submit:
                computation = _Computation(self, to_submit)
                pending = self._submit([missing[key] for key in to_submit], request, deadline, computation)
                computation.pending = pending
                self._computing.update((key, (computation, index)) for index, key in enumerate(to_submit))
            computed.update(to_submit)
            try:
                if pending is not None:
                    results.update(zip(to_submit, await pending.done, strict=True))
                for key, other in shared:
                    result = await other
                    if isinstance(result, ScoreFailure) and result.code not in _ITEM_FAILURES:
                        not_shared.add(key)
                    elif result is not None:
                        results[key] = result
            finally:
                if pending is not None:
                    self.queue.cancel(pending)
            missing = {key: item for key, item in missing.items() if key not in results}
        return computed

    def _submit(
        self,
        items: Sequence[ScoreItem],
        request: ScoreRequest,
        deadline: float,
        computation: "_Computation | None" = None,
    ) -> PendingRequest:
        return self.queue.submit(
            items, priority=request.priority, client=request.client.name, deadline=deadline, listener=computation
        )

    def _share(self, key: bytes, priority: Priority) -> _SharedResult | None:
        """The result that another request will have; None where this one must compute it."""
        if key not in self._computing or self.queue.stuck:
            return None
        computation, index = self._computing[key]
        pending = computation.pending
        if pending is None or (pending.priority > priority and index >= pending.taken):
            return None
        future: _SharedResult = asyncio.get_running_loop().create_future()
        computation.waiters.setdefault(index, []).append(future)
        return future

    def finished(self, computation: "_Computation", key: bytes, result: ScoreResult | None) -> None:
        """An item of a computation has its result, or will not have one."""
        if isinstance(result, Score) and result.version == self._version:
            self._cache.put(key, result)
        if self._computing.get(key, (None, 0))[0] is computation:
            del self._computing[key]

    def _count(
        self, keys: list[bytes], results: list[ScoreResult], from_memory: int, from_disk: int, computed: set[bytes]
    ) -> None:
        shared = len(keys) - from_memory - from_disk - len(computed)
        for tier, count in (("memory", from_memory), ("disk", from_disk), ("shared", shared)):
            if count:
                self._metrics.cache_hits.labels(self.queue.name, tier).inc(count)
        if computed:
            self._metrics.of(self.queue.name).cache_misses.inc(len(computed))
            firsts = {key: index for index, key in reversed(list(enumerate(keys))) if key in computed}
            counted = set(firsts.values())  # by the batcher: one result of each
            results = [result for index, result in enumerate(results) if index not in counted]
        if results:
            self._metrics.count_results(self.queue.name, results)


@dataclass(slots=True, eq=False)
class _Computation:
    """Items that one request has submitted, and the other requests that wait for them."""

    model: ServedModel
    keys: list[bytes]
    pending: PendingRequest | None = None
    waiters: dict[int, list[_SharedResult]] = field(default_factory=dict)

    def scored(self, first: int, results: Sequence[ScoreResult]) -> None:
        for index, result in enumerate(results, first):
            self._finish(index, result)

    def abandoned(self, first: int) -> None:
        for index in range(first, len(self.keys)):
            self._finish(index, None)

    def _finish(self, index: int, result: ScoreResult | None) -> None:
        self.model.finished(self, self.keys[index], result)
        for waiter in self.waiters.pop(index, ()):
            if not waiter.done():
                waiter.set_result(result)
