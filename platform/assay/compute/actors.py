"""Actors: an object of an importable class that stays in a process of its own, on this machine or in a Ray cluster.

Covers: making one, calling its methods one at a time, telling one that is gone from a call that failed, how long a call
may take. An actor ends with the process that made it, however that ends. Leaves out: bulk work on shards
(`assay.compute.stage`); what becomes of a call whose actor is gone, which the caller decides.
"""

import os
import pickle
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

from assay.compute.job import built
from assay.compute.local import end_with
from assay.errors import BackendError

FIRST_CALL_S, LEAST_CALL_S, LONGEST_CALLS = 1_800.0, 60.0, 6.0
_END_S = 10.0


class ActorLostError(BackendError):
    """The actor's process or node is gone, or does not answer: whether the call was carried out is not known."""


class Actor(Protocol):
    """One object elsewhere. Calls from one thread at a time."""

    def call(self, method: str, *arguments: Any) -> Any:
        """What the method returns. Raises what it raises, and ActorLostError."""

    def close(self) -> None:
        """End it, also in the middle of a call. Safe to call twice."""


class Node(NamedTuple):
    """A machine and its actor. `address`: as the other machines reach it."""

    address: str
    actor: Actor


class CallDeadline:
    """How long an actor's next call may take: the first one, for which it may load a model, 30 minutes; later ones
    max(60 s, 6 times the longest so far)."""

    seconds, _longest = FIRST_CALL_S, 0.0

    def answered_in(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)
        self.seconds = max(LEAST_CALL_S, LONGEST_CALLS * self._longest)


class LocalActor:
    """An actor in a process of this machine, started anew (nothing is inherited but the environment)."""

    def __init__(self, target: str, arguments: Mapping[str, Any]) -> None:
        context = get_context("spawn")
        self._pipe, pipe = context.Pipe()
        self._process = context.Process(target=_serve, args=(pipe, os.getpid(), target, dict(arguments)), daemon=True)
        self._process.start()
        pipe.close()
        self._deadline = CallDeadline()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def call(self, method: str, *arguments: Any) -> Any:
        """See `Actor.call`. Values are pickled, no memory is shared. A process that is too late is killed."""
        started, limit = time.monotonic(), self._deadline.seconds
        late = threading.Timer(limit, self._process.kill)  # a stopped process does not read a long request either
        late.start()
        try:
            self._pipe.send_bytes(pickle.dumps((method, arguments)))
            done, value = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            silent = f": no answer for {limit:.0f} s" if time.monotonic() - started >= limit else ""
            raise ActorLostError(f"process {self.pid} of this run is gone{silent}") from error
        finally:
            late.cancel()
        self._deadline.answered_in(time.monotonic() - started)
        if not done:
            raise value
        return value

    def close(self) -> None:
        self._process.kill()
        self._process.join(_END_S)


def _serve(pipe: Connection, parent: int, target: str, arguments: Mapping[str, Any]) -> None:
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    instance: Any = None
    while True:
        try:
            method, values = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            instance = instance or built(target, arguments)
            answer = (True, getattr(instance, method)(*values))
        except Exception as error:
            answer = (False, error)
        with suppress(BrokenPipeError):
            pipe.send_bytes(_pickled(answer))


def _pickled(answer: tuple[bool, Any]) -> bytes:
    """An error that cannot be rebuilt from its arguments arrives as its text."""
    content = pickle.dumps(answer)
    if not answer[0]:
        try:
            pickle.loads(content)
        except Exception:
            error = answer[1]
            return pickle.dumps((False, BackendError(f"{type(error).__name__}: {error}")))
    return content
