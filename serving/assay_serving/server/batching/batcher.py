"""Dynamic batching: queued items of all requests are scored together, in one thread that owns the engine.

Covers: a bounded queue, engine calls of bounded length that take items of several requests (and parts of large ones),
requests that are scored by themselves where scores are relative, cancellation, deadlines, isolation of a request that
breaks the engine, an engine that does not return. Leaves out: HTTP, the order of requests (`fair_queue`), token batches
within one engine call (`assay_serving.engines.batching`), the cache.

All methods run on the event loop; only the engine runs in its thread.
"""

import asyncio
import atexit
import logging
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from typing import TypeAlias

from assay.errors import AssayError, BusyError, LateError
from assay.score import ScoreFailure, ScoreResult
from assay_serving.scorer import ScoreItem, Scorer
from assay_serving.server.batching.fair_queue import LARGE_SHARE, Backlog, EngineCall, Listener, PendingRequest
from assay_serving.server.core.scoring_backend import Priority
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.engine_metrics import EngineMetrics

logger = logging.getLogger("assay.serving")

Score: TypeAlias = Callable[[Sequence[ScoreItem]], list[ScoreResult]]
Results: TypeAlias = asyncio.Future[list[ScoreResult]]

LAST_CALL_S = 10.0  #: for a call in progress when the process ends

#: Characters per second until the engine has been measured: few enough that the first call is over soon.
_FIRST_GUESS = 20_000.0
_FIRST_GUESS_GENERATIVE = 200.0
_WEIGHT_OF_NEW = 0.3  # of the latest call in the running speed
_MOMENT_S = 0.02
_GIVE_UP = 16  # requests that fail alone in a row: the engine itself is broken


@dataclass(frozen=True, slots=True)
class _Running:
    call: EngineCall
    items: list[ScoreItem]
    results: Results
    started: float


class DynamicBatcher:
    """The queue in front of one scorer, and the worker that empties it."""

    def __init__(self, name: str, scorer: Scorer, settings: ServerSettings, metrics: EngineMetrics) -> None:
        self.scorer = scorer
        self._relative: bool = getattr(scorer, "relative", False)
        self.stuck = False  #: an engine call has exceeded its time limit and has not returned
        self._overdue_since = 0.0
        self._several = False  #: the last call had items of several requests
        self._idle = False  #: the worker waits for a request
        self.settings = settings
        self._metrics = metrics
        self._backlog = Backlog(_FIRST_GUESS_GENERATIVE if scorer.info.kind == "generative" else _FIRST_GUESS)
        self._arrived = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._thread = EngineThread(f"engine-{name}")
        self._running: _Running | None = None
        self.report_as(name)

    def report_as(self, name: str) -> None:
        """Count under this name in the metrics from now on, which do not keep the scorer alive."""
        self.name, backlog = name, self._backlog
        self._metrics.watch_queue(name, lambda: backlog.items, lambda: backlog.seconds)

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work(), name=f"batcher-{self.name}")

    async def stop(self) -> None:
        """Drop queued requests. An engine call in progress runs to its end; its results are discarded."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        error = BusyError("the server is stopping", retry_after=1)
        self._refuse(self._backlog.clear(), error)
        if self._running is not None:
            for pending, start, _ in self._running.call.parts:
                self._refuse([pending], error)
                if pending.listener is not None:
                    pending.listener.abandoned(start)
        self._thread.stop()

    @property
    def alive(self) -> bool:
        """Whether there is a worker, though its engine may be stuck."""
        return self._worker is not None and not self._worker.done()

    @property
    def overdue_s(self) -> float:
        """By how long a call in progress exceeds its time limit; 0 for none."""
        return time.perf_counter() - self._overdue_since if self.stuck else 0.0

    @property
    def waiting(self) -> int:
        """Items that no engine call has taken yet."""
        return self._backlog.items

    def submit(
        self,
        items: Sequence[ScoreItem],
        *,
        priority: Priority = Priority.INTERACTIVE,
        client: str = "",
        deadline: float = float("inf"),
        listener: Listener | None = None,
    ) -> PendingRequest:
        """Queue a request. `client`: the client whose share of the engine it uses; others: see `PendingRequest`.

        Raises BusyError when the queue is full (with the seconds after which there should be room), and while the
        engine is stuck in a call.
        """
        loop = asyncio.get_running_loop()
        pending = PendingRequest(
            items,
            loop.create_future(),
            priority=priority,
            client=client,
            deadline=deadline,
            arrived=loop.time(),
            listener=listener,
            relative=self._relative,
        )
        if not items:
            pending.add([])
            return pending
        if self.stuck or not self.alive:
            raise BusyError(f"the engine of {self.name} does not answer", retry_after=10)
        settings, backlog = self.settings, self._backlog
        too_many = backlog.items + len(items) > settings.max_queue_items
        # A single large request is always admitted to an empty queue: the body's limit has bounded it.
        too_large = backlog.items > 0 and backlog.characters + pending.characters > settings.max_queue_characters
        if too_many or too_large:
            retry_after = min(60.0, backlog.seconds)
            raise BusyError(f"the queue of {self.name} is full ({backlog.items} items)", retry_after=retry_after)
        backlog.add(pending, large=int(LARGE_SHARE * backlog.speed * settings.engine_call_s))
        if self._idle and not self._several and pending.deadline > pending.arrived:
            # A single client waits for nobody: the engine begins before the worker has woken up. Not for a request that
            # is late, which would be refused before its caller has it.
            self._send(pending.arrived)
        self._arrived.set()
        return pending

    def cancel(self, pending: PendingRequest) -> None:
        """Drop a request whose client is gone; results of items already with the engine are discarded."""
        pending.done.cancel()
        if pending.taken < len(pending.items):
            # The client's own timer may be a moment before the deadline.
            why = "late" if pending.deadline - asyncio.get_running_loop().time() < _MOMENT_S else "gone"
            self._metrics.dropped.labels(self.name, why).inc(len(pending.items) - pending.taken)
            self._backlog.remove(pending)

    async def _work(self) -> None:
        while True:
            if self._running is None and not self._send():
                self._arrived.clear()
                self._idle = True
                await self._arrived.wait()
                self._idle = False
                # The engine was idle. More requests may follow where there were several before; while it was busy they
                # could join.
                if self._several and self._running is None:
                    await asyncio.sleep(self.settings.window_s)
                continue
            running = self._running
            assert running is not None
            results = await self._outcome(running)
            if results is None:
                results = await self._isolated(running.call)
            self._running = None
            if isinstance(results, AssayError):
                self._fail(running.call, results)
            else:
                self._send()  # the engine goes on while its results are handed out
                self._hand_out(running.call, results)

    def _send(self, now: float | None = None) -> bool:
        """Start the next engine call; False if nothing waits."""
        if not self._backlog:
            return False
        settings = self.settings
        now = asyncio.get_running_loop().time() if now is None else now
        call = self._backlog.next_call(settings.batch_items, self._backlog.speed * settings.engine_call_s, now)
        if call.late:
            self._refuse(call.late, LateError("not scored in time"))
            self._metrics.dropped.labels(self.name, "late").inc(sum(len(p.items) - len(p.results) for p in call.late))
        if not call.parts:
            return False
        items: list[ScoreItem] = []
        for pending, start, stop in call.parts:
            items += pending.items[start:stop]
            if start == 0:
                self._metrics.of(self.name).waits(pending.priority.name.lower()).observe(now - pending.arrived)
        self._idle, self._several = False, len(call.parts) > 1
        results = self._thread.call(self._score_of(call.parts), items)
        self._running = _Running(call, items, results, time.perf_counter())
        return True

    def _score_of(self, parts: Sequence[tuple[PendingRequest, int, int]]) -> Score:
        """How the items of these parts are scored: each request by itself where a score depends on those beside it."""
        if not self._relative:
            return self.scorer.score

        def each(items: Sequence[ScoreItem]) -> list[ScoreResult]:
            remaining = iter(items)
            requests = [list(islice(remaining, stop - start)) for _, start, stop in parts]
            return [result for request in requests for result in self.scorer.score(request)]

        return each

    async def _outcome(self, running: _Running) -> list[ScoreResult] | AssayError | None:
        """The engine's results; an error of the whole model; None if the engine broke on these items."""
        results = await self._engine_results(running.results, running.call, running.items)
        seconds = time.perf_counter() - running.started
        self._metrics.of(self.name).call_items.observe(len(running.items))
        self._metrics.of(self.name).call_seconds.observe(seconds)
        if isinstance(results, list):
            speed = running.call.characters / max(seconds, 1e-6)
            self._backlog.speed += _WEIGHT_OF_NEW * (max(speed, 1.0) - self._backlog.speed)
        return results

    async def _engine_results(
        self, results: Results, call: EngineCall, items: Sequence[ScoreItem]
    ) -> list[ScoreResult] | AssayError | None:
        """See `_outcome`. While a call exceeds its time limit, the model is stuck and refuses requests."""
        loop = asyncio.get_running_loop()
        limit = loop.call_later(self.settings.engine_timeout_s, self._exceeded, call, len(items), results)
        scores: list[ScoreResult] = []
        error: Exception | None = None
        try:
            scores = await results
        except Exception as raised:
            error = raised
        finally:
            limit.cancel()
        if self.stuck:
            self.stuck = False
            logger.warning("engine %s has returned", self.name)
        if error is None and len(scores) == len(items):
            return scores
        # The message may quote a prompt: only the type and the places are logged.
        failure = type(error).__name__ if error is not None else f"{len(scores)} results"
        trace = "".join(traceback.format_tb(error.__traceback__)) if error is not None else ""
        logger.error("engine %s failed on %d items: %s\n%s", self.name, len(items), failure, trace)
        return error if isinstance(error, AssayError) else None

    def _exceeded(self, call: EngineCall, items: int, results: Results) -> None:
        """The call has taken as long as one may; nothing, where it has returned while this loop was busy."""
        if results.done():
            return
        limit = self.settings.engine_timeout_s
        logger.error("engine %s has not returned from %d items in %g s", self.name, items, limit)
        self.stuck, self._overdue_since = True, time.perf_counter()
        self._refuse([pending for pending, _, _ in call.parts], LateError(f"the engine took more than {limit:g} s"))
        busy = BusyError(f"the engine of {self.name} does not answer", retry_after=10)
        self._refuse(self._backlog.clear(), busy)

    async def _isolated(self, call: EngineCall) -> list[ScoreResult]:
        """The results of a call that broke the engine, by bisection: only the requests that break it again fail."""
        by_part: dict[int, list[ScoreResult]] = {}
        failed_alone = 0  # requests since the last success
        ranges = _halves(0, len(call.parts))
        while ranges and failed_alone < _GIVE_UP:
            first, end = ranges.pop()
            parts = call.parts[first:end]
            items = [item for pending, start, stop in parts for item in pending.items[start:stop]]
            results = await self._engine_results(self._thread.call(self._score_of(parts), items), call, items)
            if isinstance(results, list):
                failed_alone, offset = 0, 0
                for number, (_, start, stop) in enumerate(parts, first):
                    by_part[number] = results[offset : offset + stop - start]
                    offset += stop - start
            else:
                ranges += _halves(first, end)
                failed_alone += end - first == 1
        failure = ScoreFailure("backend", "the engine failed on this request", self.name)
        return [
            result
            for number, (_, start, stop) in enumerate(call.parts)
            for result in by_part.get(number, [failure] * (stop - start))
        ]

    def _hand_out(self, call: EngineCall, results: list[ScoreResult]) -> None:
        self._metrics.count_results(self.name, results)
        first = 0
        for pending, start, stop in call.parts:
            pending.add(results[first : first + stop - start])
            first += stop - start

    def _fail(self, call: EngineCall, error: AssayError) -> None:
        """The model is gone or busy: no request caused it, so none is retried alone."""
        if isinstance(error, BusyError | LateError):
            self._refuse([pending for pending, _, _ in call.parts], error)
        failure = ScoreFailure(error.code, "the engine failed on this request", self.name)
        self._hand_out(call, [failure] * call.items)

    def _refuse(self, requests: Sequence[PendingRequest], error: AssayError) -> None:
        """Fail requests. Those without items in a call must have left the queue."""
        for pending in requests:
            if not pending.done.done():
                pending.done.set_exception(error)


def _halves(first: int, end: int) -> list[tuple[int, int]]:
    """The range's halves, the first one last; none of a range of one."""
    middle = (first + end) // 2
    return [(middle, end), (first, middle)] if end - first > 1 else []


_living: "weakref.WeakSet[EngineThread]" = weakref.WeakSet()


class EngineThread:
    """The thread that owns an engine: one call at a time, in order.

    A process that ends waits for a call in progress for at most `LAST_CALL_S`.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Score, Sequence[ScoreItem], Results] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _living.add(self)

    def call(self, score: Score, items: Sequence[ScoreItem]) -> Results:
        """The results of `score(items)`; on the event loop."""
        future: Results = asyncio.get_running_loop().create_future()
        self._calls.put((score, items, future))
        return future

    def stop(self) -> None:
        """End after the call in progress."""
        self._calls.put(None)

    def join(self, timeout: float) -> None:
        """Wait until it has ended, or for `timeout` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            score, items, future = call
            results: list[ScoreResult] | None = None
            error: Exception | None = None
            try:
                if not future.cancelled():
                    results = score(items)
            except Exception as raised:
                error = raised
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, results, error)
            except RuntimeError:
                return  # the loop is closed
            del call, score, items, future, results, error  # while waiting, hold no engine and no text


def _settle(future: Results, results: list[ScoreResult] | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(results or [])


@atexit.register
def _end_all() -> None:
    """Python kills daemon threads at exit, in the middle of the engine's own code."""
    threads = list(_living)
    for thread in threads:
        thread.stop()
    for thread in threads:
        thread.join(LAST_CALL_S)
