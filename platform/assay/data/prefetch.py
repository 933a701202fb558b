"""An iterator that computes the next item in a thread while the caller processes the current one.

Pays off where the two release the interpreter in turn, such as parsing in Python beside SQL in DuckDB.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar, cast

T = TypeVar("T")


def prefetch(items: Iterable[T]) -> Iterator[T]:
    """The items, each computed in a thread while the caller processes the one before it.

    Two items are in memory at a time. Exceptions are raised where the failed item would have been returned.
    """
    ready: queue.Queue[tuple[T | None, BaseException | None, bool]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(item: T | None, error: BaseException | None, last: bool) -> None:
        while not stopped.is_set():
            try:
                return ready.put((item, error, last), timeout=0.1)
            except queue.Full:
                continue
        return None

    def read() -> None:
        try:
            for item in items:
                put(item, None, False)
                if stopped.is_set():
                    return
            put(None, None, True)
        except BaseException as error:
            put(None, error, True)

    thread = threading.Thread(target=read, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error, last = ready.get()
            if error is not None:
                raise error
            if last:
                return
            yield cast(T, item)
    finally:
        stopped.set()
        thread.join()
