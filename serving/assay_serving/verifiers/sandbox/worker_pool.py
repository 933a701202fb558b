"""Verification of responses, with untrusted input checked in worker processes that are killed when they hang.

Covers: a pool of workers, started on demand; a time limit per item; SIGKILL to the process group of a worker that
exceeds it or dies, and a typed failure for its item only; a memory limit; use from several threads. Constraints without
untrusted input are checked in this process. Leaves out: what a program can reach on the machine (`program_runner`).

Failures: `verifier_timeout`, `verifier_crashed`, `bad_input` (a constraint that cannot be checked). They are never a
number: whether the response is correct is unknown.
"""

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
from typing import IO, Annotated, Any, TypeAlias

from annotated_types import Ge, Gt

from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay.settings import CheckedSettings
from assay.system.closable import Closable
from assay_serving.verifiers.constraint import Constraint, Verdict, Verification

VERIFIER = "verifier"
TIMEOUT, CRASHED = "verifier_timeout", "verifier_crashed"
SECONDS = 10.0
MEMORY = 4 << 30
START_SECONDS = 120.0  #: for starting and importing, on a machine that does much else
CACHED = 8192  #: verdicts: a reward and `acc` ask for the same ones
MOST_WORKERS = 8

Item: TypeAlias = tuple[Sequence[Constraint], str]  #: constraints, and the response to check
Outcome: TypeAlias = Verification | ScoreFailure


@dataclass(frozen=True)
class PoolConfig(CheckedSettings):
    """`seconds` an item may take, on top of the time limits of its programs; `memory` bytes of a worker."""

    workers: Annotated[int, Ge(0)] = 0  #: 0: one a core, up to 8
    seconds: Annotated[float, Gt(0)] = SECONDS
    memory: Annotated[int, Ge(256 << 20)] = MEMORY  #: below it none starts

    @property
    def size(self) -> int:
        return self.workers or min(MOST_WORKERS, os.cpu_count() or 1)


class VerifierPool(Closable):
    """Workers are started on demand, at most `config.size`, and reused."""

    def __init__(self, config: PoolConfig | None = None) -> None:
        self.config = config or PoolConfig()
        self._threads = ThreadPoolExecutor(self.config.size, thread_name_prefix="verifier")
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._cache: OrderedDict[bytes, list[Verdict] | ScoreFailure] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """Of each item, in order: its verdicts, or why there are none. An item holds one constraint or more.

        Raises BackendError where an optional package is missing, BadInputError for an item without constraints.
        """
        if any(not constraints for constraints, _ in items):
            raise BadInputError("no constraints to verify: an unconstrained response neither passes nor fails")
        untrusted = [[c for c in constraints if c.foreign] for constraints, _ in items]
        tasks = [
            self._threads.submit(self._foreign, foreign, response) if foreign else None
            for foreign, (_, response) in zip(untrusted, items, strict=True)
        ]
        outcomes: list[Outcome] = []
        for (constraints, response), task in zip(items, tasks, strict=True):
            answered = task.result() if task is not None else []
            if isinstance(answered, ScoreFailure):
                outcomes.append(answered)
                continue
            from_worker = iter(answered)
            verdicts = tuple(next(from_worker) if c.foreign else c.check(response) for c in constraints)
            outcomes.append(Verification(tuple(constraints), verdicts))
        return outcomes

    def close(self) -> None:
        """End all workers. Items in progress are finished; new ones are refused."""
        self._closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().kill()

    def _foreign(self, constraints: Sequence[Constraint], response: str) -> list[Verdict] | ScoreFailure:
        payloads = [constraint.to_dict() for constraint in constraints]
        key = hashlib.sha256(json.dumps([payloads, response]).encode()).digest()
        with self._lock:
            cached = self._cache.pop(key, None)
            if isinstance(cached, ScoreFailure):  # reported once more, for the other of reward and `acc`; then retried
                return cached
            if cached is not None:
                self._cache[key] = cached
                return cached
        seconds = self.config.seconds + sum(constraint.run_seconds for constraint in constraints)
        kinds = ", ".join(constraint.kind for constraint in constraints)
        answer = self._ask_worker({"constraints": payloads, "response": response, "seconds": seconds}, seconds, kinds)
        with self._lock:
            self._cache[key] = answer
            if len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return answer

    def _ask_worker(self, request: dict[str, Any], seconds: float, kinds: str) -> list[Verdict] | ScoreFailure:
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
            return ScoreFailure(CRASHED, f"{kinds}: the worker ended with {_status_text(status)}", VERIFIER)
        except BaseException:
            worker.kill()
            raise
        self._idle.put(worker)
        if "verdicts" in reply:
            return [Verdict(bool(passed), str(detail)) for passed, detail in reply["verdicts"]]
        if reply["failure"] == BackendError.code:
            raise BackendError(reply["message"])
        return ScoreFailure(reply["failure"], reply["message"], VERIFIER)

    def _worker(self) -> "_Worker":
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
    """A worker ended, or sent an invalid reply."""


class _Worker:
    """One process in its own session, so that its process group can be killed. Used by one thread at a time."""

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
        line, _, remainder = bytes(self._read).partition(b"\n")
        self._read = bytearray(remainder)
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise _GoneError from error

    def kill(self) -> int:
        """End the process and its group; its exit status, negative for a signal."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.returncode is None:  # else its pid may belong to another process
                os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        self._in.close()
        self._out.close()
        return status

    def _wait(self, stream: IO[bytes], event: int, deadline: float, seconds: float) -> None:
        poller = select.poll()  # unlike select(), for any number of open files
        poller.register(stream, event)
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not poller.poll(remaining * 1000):
            raise _SilentError(f"{seconds:g}")


def _status_text(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


_shared: tuple[int, VerifierPool] | None = None
_shared_lock = threading.Lock()


def shared_pool() -> VerifierPool:
    """The pool of this process, created at its first use and closed at exit. A forked child creates its own."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared[0] != os.getpid() or _shared[1]._closed:
            _shared = (os.getpid(), VerifierPool())
            atexit.register(_close, *_shared)
        return _shared[1]


def _close(owner: int, pool: VerifierPool) -> None:
    if owner == os.getpid():
        pool.close()


def verify(constraints: Sequence[Constraint], response: str) -> Verification:
    """Check `response` against every constraint.

    Raises BadInputError for no constraints, and BackendError where a worker gave no verdict. For many responses, or to
    continue after a failure, use the pool.
    """
    if not any(constraint.foreign for constraint in constraints) and constraints:  # start no pool
        return Verification(tuple(constraints), tuple(constraint.check(response) for constraint in constraints))
    outcome = shared_pool().verify([(constraints, response)])[0]
    if not isinstance(outcome, Verification):
        raise BackendError(f"{outcome.code}: {outcome.message}")
    return outcome
