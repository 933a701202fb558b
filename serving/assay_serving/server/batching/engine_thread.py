"""The one thread that owns an engine: calls go in from the event loop, results come back to it.

Leaves out: what is called and when (`coalescing`). A process that ends waits for a call in progress, but not for ever:
an engine that hangs does not keep it.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeAlias

from assay.score import ScoreResult
from assay_serving.scorer import ScoreItem

Score: TypeAlias = Callable[[Sequence[ScoreItem]], list[ScoreResult]]
Results: TypeAlias = asyncio.Future[list[ScoreResult]]

LAST_CALL_S = 10.0  #: for a call in progress when the process ends
_living: weakref.WeakSet[EngineThread] = weakref.WeakSet()


class EngineThread:
    """One call at a time, in order."""

    def __init__(self, name: str) -> None:
        self._orders: SimpleQueue[tuple[Score, Sequence[ScoreItem], Results] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _living.add(self)

    def call(self, score: Score, items: Sequence[ScoreItem]) -> Results:
        """The results of `score(items)`; on the event loop."""
        future: Results = asyncio.get_running_loop().create_future()
        self._orders.put((score, items, future))
        return future

    def stop(self) -> None:
        """End after the call in progress."""
        self._orders.put(None)

    def join(self, timeout: float) -> None:
        """Wait until it has ended, or for `timeout` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            score, items, future = order
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
                return  # the loop is closed: nobody listens any more
            del order, score, items, future, results, error  # while waiting, no engine and no text is held


def _settle(future: Results, results: list[ScoreResult] | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(results or [])


@atexit.register
def _end_all() -> None:
    """Python kills what still runs of such threads, in the middle of the engine's own code."""
    threads = list(_living)
    for thread in threads:
        thread.stop()
    for thread in threads:
        thread.join(LAST_CALL_S)
