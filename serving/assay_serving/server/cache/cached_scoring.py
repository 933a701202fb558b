"""A model's answers: what the cache has, what other requests are computing already, and the rest from the engine.

Covers: equal items of one request and of several at once computed once, scores kept as soon as the engine gives them.
Leaves out: keys (`score_keys`), the cache (`score_cache`), the queue (`coalescing`).

An item of another request is waited for only where that costs nothing: not behind a lower priority, and not in vain. If
the other request is dropped, or broke the engine, the item is scored for this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.scorer import ScoreItem
from assay_serving.server.batching.batcher import Coalescer
from assay_serving.server.batching.fair_queue import Pending
from assay_serving.server.cache.memory_cache import ScoreCache
from assay_serving.server.cache.score_keys import ScoreKeys
from assay_serving.server.core.scoring_backend import Priority, ScoreRequest
from assay_serving.server.metrics.http_metrics import EngineMetrics

#: Failures that lie in the item: another request would get them too.
_ITS_OWN = ("bad_input", "too_long", "non_finite", "unparsable")
#: Resolves to the result of an item that another request computes, None if that came to nothing.
_Followed: TypeAlias = asyncio.Future[ScoreResult | None]


class CachedScoring:
    """Answers requests for the model of one queue. An engine that is not repeatable is asked every time."""

    def __init__(self, queue: Coalescer, cache: ScoreCache, metrics: EngineMetrics) -> None:
        self.queue = queue
        self._cache = cache
        self._metrics = metrics
        self._keys = ScoreKeys.of_engine(queue.scorer)
        self._version = queue.scorer.info.version
        self._flights: dict[bytes, tuple[_Flight, int]] = {}  #: items with the engine or before it, by key

    async def answer(self, request: ScoreRequest) -> tuple[list[ScoreResult], int]:
        """The items' results in order, and how many of them no engine computed for this request.

        Raises BusyError and LateError. Cancelling it drops what still waits.
        """
        deadline = asyncio.get_running_loop().time() + request.timeout_s
        if self._keys is None:
            return await self._compute(request, deadline), 0
        keys = self._keys.of(request.items)
        found: dict[bytes, ScoreResult] = {}
        missing: dict[bytes, ScoreItem] = {}
        for key, item in zip(keys, request.items, strict=True):
            if key not in found and key not in missing:
                score = self._cache.get(key)
                if score is None:
                    missing[key] = item
                else:
                    found[key] = score
        remembered = len(found)
        if missing and (wanted := self._cache.on_disk(missing)):
            for key, score in (await self._cache.fetch(wanted)).items():
                found[key] = score
                del missing[key]
        fetched = len(found) - remembered
        computed = await self._fly(missing, found, request, deadline) if missing else set()
        results = [found[key] for key in keys]
        self._count(keys, results, remembered, fetched, computed)
        return [self._named(result) for result in results], len(keys) - len(computed)

    async def _compute(self, request: ScoreRequest, deadline: float) -> list[ScoreResult]:
        pending = self._put(request.items, request, deadline)
        try:
            return await pending.done
        finally:
            self.queue.drop(pending)

    async def _fly(
        self, missing: dict[bytes, ScoreItem], found: dict[bytes, ScoreResult], request: ScoreRequest, deadline: float
    ) -> set[bytes]:
        """Results of the missing items into `found`; returns the keys of those that were scored for this request."""
        computed: set[bytes] = set()
        alone: set[bytes] = set()  # not followed again: the engine broke, or refused, with another request of them
        while missing:
            led: list[bytes] = []
            followed: list[tuple[bytes, _Followed]] = []
            for key in missing:
                other = None if key in alone else self._follow(key, request.priority)
                if other is None:
                    led.append(key)
                else:
                    followed.append((key, other))
            pending = self._lead(led, missing, request, deadline) if led else None
            computed.update(led)
            try:
                if pending is not None:
                    found.update(zip(led, await pending.done, strict=True))
                for key, other in followed:
                    result = await other
                    if isinstance(result, ScoreFailure) and result.code not in _ITS_OWN:
                        alone.add(key)
                    elif result is not None:
                        found[key] = result
            finally:
                if pending is not None:
                    self.queue.drop(pending)
            missing = {key: item for key, item in missing.items() if key not in found}
        return computed

    def _lead(
        self, keys: list[bytes], items: dict[bytes, ScoreItem], request: ScoreRequest, deadline: float
    ) -> Pending:
        flight = _Flight(self, keys)
        pending = self._put([items[key] for key in keys], request, deadline, flight)
        flight.pending = pending
        for place, key in enumerate(keys):
            self._flights[key] = (flight, place)
        return pending

    def _put(
        self, items: Sequence[ScoreItem], request: ScoreRequest, deadline: float, flight: _Flight | None = None
    ) -> Pending:
        return self.queue.put(
            items, priority=request.priority, client=request.client.name, deadline=deadline, listener=flight
        )

    def _follow(self, key: bytes, priority: Priority) -> _Followed | None:
        """The result that another request will have; None where this one must see to it itself."""
        if key not in self._flights or self.queue.stuck:
            return None
        flight, place = self._flights[key]
        pending = flight.pending
        if pending is None or (pending.priority > priority and place >= pending.taken):
            return None
        future: _Followed = asyncio.get_running_loop().create_future()
        flight.followers.setdefault(place, []).append(future)
        return future

    def landed(self, flight: _Flight, key: bytes, result: ScoreResult) -> None:
        """An item of a flight has its result."""
        if isinstance(result, Score) and result.version == self._version:
            self._cache.put(key, result)
        self.lost(flight, key)

    def lost(self, flight: _Flight, key: bytes) -> None:
        """An item of a flight needs no more waiting."""
        if self._flights.get(key, (None, 0))[0] is flight:
            del self._flights[key]

    def _named(self, result: ScoreResult) -> ScoreResult:
        """The same model may have given the score under another name."""
        return result if result.model == self.queue.name else replace(result, model=self.queue.name)

    def _count(
        self, keys: list[bytes], results: list[ScoreResult], remembered: int, fetched: int, computed: set[bytes]
    ) -> None:
        shared = len(keys) - remembered - fetched - len(computed)
        for tier, count in (("memory", remembered), ("disk", fetched), ("shared", shared)):
            if count:
                self._metrics.cache_hits.labels(self.queue.name, tier).inc(count)
        if computed:
            self._metrics.cache_misses.labels(self.queue.name).inc(len(computed))
            firsts = {key: place for place, key in reversed(list(enumerate(keys))) if key in computed}
            counted = set(firsts.values())  # by the queue: one result of each
            results = [result for place, result in enumerate(results) if place not in counted]
        if results:
            self._metrics.count_results(self.queue.name, results)


class _Flight:
    """The items of one request that it has scored itself, and who else waits for them."""

    __slots__ = ("_home", "followers", "keys", "pending")

    def __init__(self, home: CachedScoring, keys: list[bytes]) -> None:
        self._home = home
        self.keys = keys
        self.pending: Pending | None = None
        self.followers: dict[int, list[_Followed]] = {}

    def scored(self, first: int, results: Sequence[ScoreResult]) -> None:
        for place, result in enumerate(results, first):
            self._home.landed(self, self.keys[place], result)
            self._tell(place, result)

    def given_up(self, first: int) -> None:
        for place in range(first, len(self.keys)):
            self._home.lost(self, self.keys[place])
            self._tell(place, None)

    def _tell(self, place: int, result: ScoreResult | None) -> None:
        for follower in self.followers.pop(place, ()):
            if not follower.done():
                follower.set_result(result)
