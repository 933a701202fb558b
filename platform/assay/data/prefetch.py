"""An iterator that computes the next item in a thread while the caller processes the current one.

Pays off where the two release the interpreter in turn, such as parsing in Python beside SQL in DuckDB.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar, cast

T = TypeVar("T")


def prefetch(items: Iterable[T]) -> Iterator[T]:
    """The items, each computed in a thread while the caller processes the one before it.

    At most two items are in memory at a time: none is begun before the last one is taken. Exceptions are raised where
    the failed item would have been returned.
    """
    ready: queue.SimpleQueue[tuple[T | None, BaseException | None, bool]] = queue.SimpleQueue()
    stopped = threading.Event()
    taken = threading.Semaphore(0)

    def put(item: T | None, error: BaseException | None, last: bool) -> None:
        ready.put((item, error, last))
        del item
        while not (stopped.is_set() or taken.acquire(timeout=0.1)):
            continue

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
            taken.release()
            if error is not None:
                raise error
            if last:
                return
            yield cast(T, item)
    finally:
        stopped.set()
        thread.join()
