"""The one thread that owns an engine: calls go in from the event loop, results come back to it.

Leaves out: what is called and when (`coalescing`). A daemon: an engine that hangs keeps no process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeAlias

from assay.score import ScoreResult
from assay_serving.scorer import ScoreItem

Score: TypeAlias = Callable[[Sequence[ScoreItem]], list[ScoreResult]]
Results: TypeAlias = asyncio.Future[list[ScoreResult]]


class EngineThread:
    """One call at a time, in order."""

    def __init__(self, name: str) -> None:
        self._orders: SimpleQueue[tuple[Score, Sequence[ScoreItem], Results] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, score: Score, items: Sequence[ScoreItem]) -> Results:
        """The results of `score(items)`; on the event loop."""
        future: Results = asyncio.get_running_loop().create_future()
        self._orders.put((score, items, future))
        return future

    def stop(self) -> None:
        """End after the call in progress."""
        self._orders.put(None)

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
