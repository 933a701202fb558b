"""Writing results from any thread, in batches within a second, so that a busy store does not stop calls in flight."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from assay.errors import BusyError

WRITE_EVERY_S = 1.0  #: how long a result may wait for company before it is written

T = TypeVar("T")


class Recorder(Generic[T]):
    """A context manager: leaving it writes what is still waiting, then raises what went wrong with writing, unless
    something else is being raised already."""

    def __init__(self, write: Callable[[Sequence[T]], None]) -> None:
        """`write` stores a batch in one unit of work; BusyError makes it wait for the next turn."""
        self._write = write
        self._waiting: queue.SimpleQueue[tuple[T] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="assay-recorder", daemon=True)

    def __enter__(self) -> Recorder[T]:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._waiting.put(None)
        self._thread.join()
        if self._error is not None:
            if error is None:
                raise self._error
            error.add_note(f"and some answers could not be written: {self._error}")

    def put(self, item: T) -> None:
        """Raises what an earlier batch failed with."""
        if self._error is not None:
            raise self._error
        self._waiting.put((item,))

    def _run(self) -> None:
        batch: list[T] = []
        more = True
        while more:
            entry = self._waiting.get()
            deadline = time.monotonic() + WRITE_EVERY_S
            while entry is not None:
                batch.append(entry[0])
                try:
                    entry = self._waiting.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    break
            else:
                more = False
            try:
                if batch:
                    self._write(batch)
                batch = []
            except BusyError as error:  # keep them: the holder may be done by the next time
                if not more:
                    self._error = error
            except BaseException as error:
                self._error = error
                return
