"""Checking foreign constraints in worker processes that are killed when they hang.

Covers: a pool of workers, each started when it is needed; a time limit for every item; SIGKILL to the process group of
a worker that exceeds it or dies, and a typed failure for its item, while all others get their verdicts; a memory limit;
use from several threads. Constraints that run nothing foreign are checked here, at once. Leaves out: what a program can
reach on the machine (`sandbox`).

Failures: `verifier_timeout`, `verifier_crashed`, `bad_input` (a constraint that cannot be checked). They are never a
number: whether the response is right is not known.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, TypeAlias

from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_serving.verifiers.constraint import Constraint
from assay_serving.verifiers.verdict import Verdict, Verification

VERIFIER = "verifier"
TIMEOUT, CRASHED = "verifier_timeout", "verifier_crashed"
SECONDS = 10.0
MEMORY = 4 << 30
START_SECONDS = 120.0  #: for starting and importing, on a machine that does much else
REMEMBERED = 8192  #: verdicts: a reward and `acc` ask the same
MOST_WORKERS = 8

Item: TypeAlias = tuple[Sequence[Constraint], str]  #: constraints, and the response to check
Outcome: TypeAlias = Verification | ScoreFailure


@dataclass(frozen=True)
class PoolConfig:
    """`seconds` an item may take, on top of what its constraints may spend on programs; `memory` bytes of a worker."""

    workers: int = 0  #: 0: one a core, up to 8
    seconds: float = SECONDS
    memory: int = MEMORY

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise BadInputError(f"must be 0 or more, not {self.workers}", field="workers")
        if not self.seconds > 0:
            raise BadInputError(f"must be above 0, not {self.seconds}", field="seconds")
        if self.memory < 256 << 20:
            raise BadInputError(f"a worker needs 256 MiB to start, not {self.memory} bytes", field="memory")

    @property
    def size(self) -> int:
        return self.workers or min(MOST_WORKERS, os.cpu_count() or 1)


class VerifierPool:
    """Workers are started as they are needed, at most `config.size` at a time, and kept."""

    def __init__(self, config: PoolConfig | None = None) -> None:
        self.config = config or PoolConfig()
        self._threads = ThreadPoolExecutor(self.config.size, thread_name_prefix="verifier")
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._known: OrderedDict[bytes, list[Verdict] | ScoreFailure] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> VerifierPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """Of each item, in order: its verdicts, or why there are none. An item holds one constraint or more.

        Raises BackendError where an optional package is missing, BadInputError for an item without constraints.
        """
        if any(not constraints for constraints, _ in items):
            raise BadInputError("no constraints to verify: an unconstrained response neither passes nor fails")
        asked = [[c for c in constraints if c.foreign] for constraints, _ in items]
        under_way = [
            self._threads.submit(self._foreign, foreign, response) if foreign else None
            for foreign, (_, response) in zip(asked, items, strict=True)
        ]
        outcomes: list[Outcome] = []
        for (constraints, response), task in zip(items, under_way, strict=True):
            answered = task.result() if task is not None else []
            if isinstance(answered, ScoreFailure):
                outcomes.append(answered)
                continue
            given = iter(answered)
            verdicts = tuple(next(given) if c.foreign else c.check(response) for c in constraints)
            outcomes.append(Verification(tuple(constraints), verdicts))
        return outcomes

    def close(self) -> None:
        """End all workers. What is under way comes to its end first; nothing new is taken."""
        self._closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().kill()

    def _foreign(self, constraints: Sequence[Constraint], response: str) -> list[Verdict] | ScoreFailure:
        payloads = [constraint.to_dict() for constraint in constraints]
        key = hashlib.sha256(json.dumps([payloads, response]).encode()).digest()
        with self._lock:
            known = self._known.pop(key, None)
            if isinstance(
                known, ScoreFailure
            ):  # told once more, to the other of the reward and `acc`; then tried again
                return known
            if known is not None:
                self._known[key] = known
                return known
        seconds = self.config.seconds + sum(constraint.run_seconds for constraint in constraints)
        kinds = ", ".join(constraint.kind for constraint in constraints)
        answer = self._asked({"constraints": payloads, "response": response, "seconds": seconds}, seconds, kinds)
        with self._lock:
            self._known[key] = answer
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return answer

    def _asked(self, request: dict[str, Any], seconds: float, kinds: str) -> list[Verdict] | ScoreFailure:
        worker = self._worker()
        try:
            worker.send(request, START_SECONDS)
            reply = worker.reply(START_SECONDS)
            if "ready" in reply:
                reply = worker.reply(seconds)
        except _SilentError as error:
            worker.kill()
            return ScoreFailure(TIMEOUT, f"{kinds}: no verdict within {error} s", VERIFIER)
        except _GoneError:
            status = worker.kill()
            return ScoreFailure(CRASHED, f"{kinds}: the worker ended with {_told(status)}", VERIFIER)
        except BaseException:
            worker.kill()
            raise
        self._idle.put(worker)
        if "verdicts" in reply:
            return [Verdict(bool(passed), str(detail)) for passed, detail in reply["verdicts"]]
        if reply["failure"] == BackendError.code:
            raise BackendError(reply["message"])
        return ScoreFailure(reply["failure"], reply["message"], VERIFIER)

    def _worker(self) -> _Worker:
        """An idle one that is alive, or a new one. As many are in use as there are threads, at most."""
        with contextlib.suppress(queue.Empty):
            while True:
                worker = self._idle.get_nowait()
                if worker.alive():
                    return worker
                worker.kill()
        return _Worker(self.config.memory)


class _SilentError(Exception):
    """A worker did not answer in time: so many seconds."""


class _GoneError(Exception):
    """A worker ended, or said what is no answer."""


class _Worker:
    """One process, in a session of its own, so that its whole group can be killed. Used by one thread at a time."""

    def __init__(self, memory: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "assay_serving.verifiers.sandbox.worker", str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        os.set_blocking(self._in.fileno(), False)
        self._read = bytearray()

    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, request: dict[str, Any], seconds: float) -> None:
        data = memoryview(json.dumps(request).encode() + b"\n")
        deadline = time.monotonic() + seconds
        while data:
            self._wait(self._in, select.POLLOUT, deadline, seconds)
            try:
                data = data[os.write(self._in.fileno(), data) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise _GoneError from error

    def reply(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            self._wait(self._out, select.POLLIN, deadline, seconds)
            more = os.read(self._out.fileno(), 1 << 16)
            if not more:
                raise _GoneError
            self._read += more
        line, _, rest = bytes(self._read).partition(b"\n")
        self._read = bytearray(rest)
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise _GoneError from error

    def kill(self) -> int:
        """End the process and its group; its exit status, negative for a signal."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.returncode is None:  # else its number may be another's by now
                os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        self._in.close()
        self._out.close()
        return status

    def _wait(self, stream: IO[bytes], event: int, deadline: float, seconds: float) -> None:
        poller = select.poll()  # unlike select(), for any number of open files
        poller.register(stream, event)
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            raise _SilentError(f"{seconds:g}")


def _told(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


_shared: tuple[int, VerifierPool] | None = None
_shared_lock = threading.Lock()


def shared_pool() -> VerifierPool:
    """The pool of this process, made at its first use and closed at its end. A forked child makes its own."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared[0] != os.getpid() or _shared[1]._closed:
            _shared = (os.getpid(), VerifierPool())
            atexit.register(_close, *_shared)
        return _shared[1]


def _close(owner: int, pool: VerifierPool) -> None:
    if owner == os.getpid():
        pool.close()
