"""Many small requests, one engine: waiting items of all requests are scored together.

Covers: a bounded queue of requests, engine calls of a bounded length that take items of several requests (and a
part of a large one), cancellation, isolation of a request that breaks the engine. Leaves out: HTTP, the token
batches of one engine call (`assay_serving.batching`).

All methods run on the event loop; only the engine runs in the one worker thread that owns it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from assay.errors import BusyError
from assay.score import ScoreFailure, ScoreResult
from assay_serving.scorer import ScoreItem, Scorer
from assay_serving.server.metrics import EngineMetrics
from assay_serving.server.settings import ServerSettings

logger = logging.getLogger("assay.serving")

_FIRST_GUESS = 20_000.0  # characters per second, until the engine has been measured
_WEIGHT_OF_NEW = 0.3  # of the latest call in the running speed


class Pending:
    """One request's items on their way. `done` resolves to the results in the items' order."""

    def __init__(self, items: Sequence[ScoreItem], done: asyncio.Future[list[ScoreResult]]) -> None:
        self.items = items
        self.done = done
        self.taken = 0  #: items handed to the engine, always the first ones
        self.results: list[ScoreResult] = []

    def add(self, results: Sequence[ScoreResult]) -> None:
        """Results of the next items, in order."""
        self.results.extend(results)
        if len(self.results) == len(self.items) and not self.done.done():
            self.done.set_result(self.results)


class Coalescer:
    """The queue in front of one scorer, and the worker that empties it."""

    def __init__(self, name: str, scorer: Scorer, settings: ServerSettings, metrics: EngineMetrics) -> None:
        self.name = name
        self.scorer = scorer
        self._settings = settings
        self._metrics = metrics
        self._queue: deque[Pending] = deque()
        self._items = self._characters = 0  # waiting, not yet taken
        self._speed = _FIRST_GUESS
        self._arrived = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"engine-{name}")
        metrics.watch_queue(name, lambda: self._items)

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work(), name=f"coalescer-{self.name}")

    async def stop(self) -> None:
        """Drop what waits. An engine call in progress ends by itself, unheard."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        while self._queue:
            pending = self._queue.popleft()
            pending.taken = len(pending.items)
            if not pending.done.done():
                pending.done.set_exception(BusyError("the server is stopping"))
        self._items = self._characters = 0
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def alive(self) -> bool:
        return self._worker is not None and not self._worker.done()

    @property
    def waiting(self) -> int:
        """Items that no engine call has taken yet."""
        return self._items

    def put(self, items: Sequence[ScoreItem]) -> Pending:
        """Queue a request. Raises BusyError, with the seconds after which there should be room, when full."""
        pending = Pending(items, asyncio.get_running_loop().create_future())
        if not items:
            pending.add([])
            return pending
        characters = sum(item.characters for item in items)
        settings = self._settings
        too_many = self._items + len(items) > settings.max_queue_items
        # A single large request is always admitted to an empty queue: the body's limit has bounded it.
        too_large = self._items > 0 and self._characters + characters > settings.max_queue_characters
        if too_many or too_large:
            seconds = self._characters / self._speed
            raise BusyError(f"the queue of {self.name} is full ({self._items} items)", retry_after=min(60.0, seconds))
        self._queue.append(pending)
        self._items += len(items)
        self._characters += characters
        self._arrived.set()
        return pending

    def drop(self, pending: Pending) -> None:
        """Forget a request whose caller is gone; items already with the engine are scored unheard."""
        pending.done.cancel()
        if pending.taken < len(pending.items):
            self._queue.remove(pending)
            rest = pending.items[pending.taken :]
            self._items -= len(rest)
            self._characters -= sum(item.characters for item in rest)
            pending.taken = len(pending.items)

    async def _work(self) -> None:
        while True:
            if not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
                # The engine was idle: give others a moment to join. When it was busy they had their time already.
                await asyncio.sleep(self._settings.window_s)
            if parts := self._take():
                await self._score(parts)

    def _take(self) -> list[tuple[Pending, Sequence[ScoreItem]]]:
        """The next engine call: runs of items, first come first served; at least one item if any waits."""
        items_left = self._settings.batch_items
        characters_left = self._speed * self._settings.engine_call_s
        parts: list[tuple[Pending, Sequence[ScoreItem]]] = []
        while self._queue and items_left > 0 and characters_left > 0:
            pending = self._queue[0]
            start = stop = pending.taken
            while stop < len(pending.items) and items_left > 0 and characters_left > 0:
                size = pending.items[stop].characters
                stop, items_left = stop + 1, items_left - 1
                characters_left -= size
                self._characters -= size
            parts.append((pending, pending.items[start:stop]))
            pending.taken = stop
            self._items -= stop - start
            if stop == len(pending.items):
                self._queue.popleft()
        return parts

    async def _score(self, parts: list[tuple[Pending, Sequence[ScoreItem]]]) -> None:
        items = [item for _, run in parts for item in run]
        started = time.perf_counter()
        results = await self._call(items)
        seconds = time.perf_counter() - started
        if results is None and len(parts) > 1:
            # One request must not cost the others their scores.
            results = []
            for _, run in parts:
                results += await self._call(run) or self._failures(len(run))
        elif results is None:
            results = self._failures(len(items))
        else:
            speed = sum(item.characters for item in items) / max(seconds, 1e-6)
            self._speed += _WEIGHT_OF_NEW * (max(speed, 1.0) - self._speed)
        self._metrics.call_items.labels(self.name).observe(len(items))
        self._metrics.call_seconds.labels(self.name).observe(seconds)
        if self.scorer.info.name != self.name:  # scores carry the name that the model is served under
            results = [replace(result, model=self.name) for result in results]
        self._metrics.count_results(self.name, results)
        start = 0
        for pending, run in parts:
            pending.add(results[start : start + len(run)])
            start += len(run)

    async def _call(self, items: Sequence[ScoreItem]) -> list[ScoreResult] | None:
        """The engine's results, None if it raised."""
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, self.scorer.score, items)
            if len(results) != len(items):
                raise RuntimeError(f"{len(results)} results for {len(items)} items")
        except Exception as error:
            # The message may quote a prompt: only the type and the places are logged.
            trace = "".join(traceback.format_tb(error.__traceback__))
            logger.error("engine %s failed on %d items: %s\n%s", self.name, len(items), type(error).__name__, trace)
            return None
        return results

    def _failures(self, count: int) -> list[ScoreResult]:
        return [ScoreFailure("backend", "the engine failed on this request", self.name)] * count
