"""A cache of replies that scan the whole store, valid until the workspace's files change.

Covers: validity by size and modification time of the store, its log, the journals and the queue file; one computation
per reply at a time; a bounded number of replies. Leaves out: the replies (`routes`).
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from assay.workspace import Workspace
from assay_pipelines.annotation.ledger import FILE as QUEUES
from assay_web.service import WebService

#: A change this young may be followed by another that file systems give the same time (they count in ticks of up to
#: 10 ms): what is read then is not kept.
TICK_NS = 20_000_000
MOST = 100  #: replies; one has at most a page of comparisons with their texts

T = TypeVar("T")
State: TypeAlias = tuple[tuple[str, int, int], ...]


class ReplyCache:
    """Of one workspace. Thread-safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._kept: OrderedDict[Hashable, tuple[State, object]] = OrderedDict()

    def reply(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached reply of this key, or the result of `make`. Concurrent calls share one computation."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            try:
                return self._cached_or_new(key, make)
            finally:
                with self._lock:
                    if key not in self._kept:  # otherwise each refused request would leave a lock
                        self._making.pop(key, None)

    def _cached_or_new(self, key: Hashable, make: Callable[[], T]) -> T:
        # Taken before computing: a write meanwhile invalidates the reply.
        now, state = time.time_ns(), state_of(self._workspace)
        with self._lock:
            cached = self._kept.get(key)
            if cached is not None and cached[0] == state:
                self._kept.move_to_end(key)
                return cast(T, cached[1])
        reply = make()
        if any(changed > now - TICK_NS for _, _, changed in state):
            return reply
        with self._lock:
            self._kept[key] = (state, reply)
            self._kept.move_to_end(key)
            while len(self._kept) > MOST:
                gone, _ = self._kept.popitem(last=False)
                self._making.pop(gone, None)
        return reply


def reply_cache(service: WebService) -> ReplyCache:
    with _LOCK:
        if service not in _OF:
            _OF[service] = ReplyCache(service.workspace)
        return _OF[service]


def state_of(workspace: Workspace) -> State:
    """Changes whenever the store, a vote or a call is written."""
    store = workspace.store.path
    files = [store, store.with_name(f"{store.name}.wal"), workspace.root / QUEUES, workspace.root / f"{QUEUES}-wal"]
    files += sorted(workspace.journal.glob("*"))
    return tuple(stat for file in files if (stat := _file(file)) is not None)


def _file(path: Path) -> tuple[str, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return path.name, stat.st_size, stat.st_mtime_ns


_OF: WeakKeyDictionary[WebService, ReplyCache] = WeakKeyDictionary()
_LOCK = threading.Lock()
