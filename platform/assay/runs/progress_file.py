"""Progress of a run, written into its folder for other processes to read.

Covers: noting what is done of what, how fast, and reading it again; it outlives both processes. Leaves out: bars for a
terminal (`assay.runs.progress_bar`, which notes what it shows), which process does the run (`assay.runs.process`).

    RUN/progress.json           what is counted now, the outermost first; replaced at most once a second
"""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

FILE = "progress.json"
EVERY_S = 1.0  #: between two notes
WINDOW_S = 60.0  #: the rate is that of the last minute, or of the last step where one takes longer
#: What is counted this soon was done before, such as answers that are known already: no rate is made of it.
SETTLED_S = 0.5

#: `noted`, or what also shows it: `assay.runs.progress_bar.progress_bar`.
Counting: TypeAlias = Callable[..., AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` things, which are called `unit`; `total` is None where it is not known. `rate`: a second, None
    until there is one. `began`, `at`: of the count and of its last step, in seconds since the epoch. `ended`: nothing
    more is counted here, because it is done or the run was interrupted."""

    what: str
    done: int
    total: int | None
    unit: str
    rate: float | None
    began: float
    at: float
    ended: bool

    @property
    def seconds_left(self) -> float | None:
        """At this rate, from the last step on."""
        if self.ended or self.total is None or not self.rate:
            return None
        return max(0, self.total - self.done) / self.rate


@contextmanager
def noting_in(folder: Path) -> Iterator[None]:
    """Note what is counted during the block in this folder. A block within it notes in both: a run that another run
    began is a part of that one."""
    outer = _NOTES.get()
    _NOTES.set((*outer, _Notes(folder)))
    try:
        yield
    finally:
        _NOTES.set(outer)


@contextmanager
def noted(what: str, total: int | None = None, *, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of units just done; it may be called from any thread. Outside of a
    `noting_in` it does nothing."""
    going = [(notes, notes.begin(what, total, unit)) for notes in _NOTES.get()]

    def advance(n: int) -> None:
        for notes, count in going:
            notes.advance(count, n)

    completed = False
    try:
        yield advance
        completed = True
    finally:
        for notes, count in going:
            notes.end(count, completed=completed)


def progress_of(folder: Path) -> list[Progress]:
    """What the run in this folder noted last, the outermost count first; nothing where it noted nothing."""
    try:
        return [Progress(**entry) for entry in json.loads((folder / FILE).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


class Count:
    """One count, and when how much of it was done."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self.ended = False
        self.began = self.at = time.time()
        self._clock = time.monotonic()
        self._last = 0.0  # of the last step, on that clock: the other may be set meanwhile
        self._before: deque[tuple[float, int]] = deque()

    def advance(self, n: int) -> None:
        self._last = now = time.monotonic() - self._clock
        if not self._before and now > SETTLED_S:
            self._before.append((SETTLED_S, self.done))
        self.done += n
        self.at = time.time()
        if self._before and now - self._before[-1][0] >= EVERY_S:
            self._before.append((now, self.done))
        # One that is older stays: of steps that take minutes there is no other.
        while len(self._before) > 1 and now - self._before[1][0] >= WINDOW_S:
            self._before.popleft()

    def progress(self) -> Progress:
        rate = None
        if self._before:
            since, done = self._before[0]
            took = self._last - since
            rate = (self.done - done) / took if took >= EVERY_S else None
        return Progress(self.what, self.done, self.total, self.unit, rate, self.began, self.at, self.ended)


class _Notes:
    """The open counts of one run, and the last that ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: list[Count] = []
        self._lock = threading.Lock()
        self._written = -EVERY_S

    def begin(self, what: str, total: int | None, unit: str) -> Count:
        with self._lock:
            count = Count(what, total, unit)
            self._counts = [other for other in self._counts if not other.ended] + [count]
            self._write()
        return count

    def advance(self, count: Count, n: int) -> None:
        with self._lock:
            count.advance(n)
            if time.monotonic() - self._written >= EVERY_S:
                self._write()

    def end(self, count: Count, *, completed: bool) -> None:
        """`completed`: otherwise the counts within it are kept, because they say where the run stopped."""
        with self._lock:
            count.ended = True
            if completed and count in self._counts:
                self._counts = self._counts[: self._counts.index(count) + 1]
            self._write()

    def _write(self) -> None:
        """Whole or not at all; not fsynced, for it is worth nothing after a crash. A full disk stops nobody's work."""
        self._written = time.monotonic()
        text = json.dumps([asdict(count.progress()) for count in self._counts])
        temporary = self._folder / f".{FILE}.{os.getpid()}.part"
        with suppress(OSError):
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self._folder / FILE)


_NOTES: ContextVar[tuple[_Notes, ...]] = ContextVar("assay_run_progress", default=())
