"""Environments' methods at work beside generation: in threads and coroutines, each within its time.

Covers: a plain method in a thread of its own, a coroutine in one event loop; answers as they come. A method that does
not end is given up, not killed: its thread goes on, and holds up neither the others nor the end of the process; so
does a coroutine that blocks the loop. Leaves out: what an answer means (`episode`).
"""

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeAlias

from assay.score import ScoreFailure

#: Seconds beyond its limit after which an answer is no longer awaited: its event loop is blocked.
GRACE_S = 2.0
Answer: TypeAlias = Any | ScoreFailure


class EnvironmentCalls:
    """Calls by number. `at_once`: that run at the same time; the others wait, which is not in their time."""

    def __init__(self, at_once: int) -> None:
        self._answers: queue.SimpleQueue[tuple[int, Answer, float]] = queue.SimpleQueue()
        self._calls: dict[int, tuple[Any, ...]] = {}  #: without an answer yet: arguments of `_call`
        self._deadlines: dict[int, float] = {}  #: of those that have begun
        self.seconds: dict[int, float] = {}  #: that the last answer of a number took
        self._at_once = at_once
        self._loops: list[asyncio.AbstractEventLoop] = []
        self._open_loop()

    def __len__(self) -> int:
        """Calls that have no answer yet."""
        return len(self._calls)

    def start(self, number: int, method: Callable[..., Any], *arguments: Any, seconds: float, name: str) -> None:
        """Call it. At most one call of a number is under way."""
        self._calls[number] = (method, arguments, seconds, name)
        asyncio.run_coroutine_threadsafe(self._call(self._room, number, *self._calls[number]), self._loop)

    def take(self, *, wait: bool) -> list[tuple[int, Answer]]:
        """The answers there are. `wait`: until there is one."""
        taken: list[tuple[int, Answer]] = []
        while self._calls:
            try:
                number, answer, seconds = self._answers.get(block=wait and not taken, timeout=0.2 if wait else None)
            except queue.Empty:
                taken += self._overdue()
                if taken or not wait:
                    break
                continue
            self._deadlines.pop(number, None)
            if self._calls.pop(number, None) is not None:  # else it was given up
                self.seconds[number] = seconds
                taken.append((number, answer))
        return taken

    def close(self) -> None:
        """End the loops; what is still under way is given up."""
        for loop in self._loops:
            loop.call_soon_threadsafe(loop.stop)

    def _overdue(self) -> list[tuple[int, Answer]]:
        """Failures of what does not answer because a coroutine blocks the loop; the others begin in another one."""
        now, late = time.monotonic(), list[tuple[int, Answer]]()
        for number in [number for number, deadline in list(self._deadlines.items()) if deadline < now]:
            del self._deadlines[number]
            method, _, seconds, name = self._calls.pop(number)
            why = f"{method.__name__} did not answer within {seconds:g} s: a coroutine blocks the event loop"
            late.append((number, ScoreFailure("environment_timeout", why, name)))
        if late:
            self._open_loop()
            for number, call in self._calls.items():
                if number not in self._deadlines:
                    asyncio.run_coroutine_threadsafe(self._call(self._room, number, *call), self._loop)
        return late

    def _open_loop(self) -> None:
        self._loop, self._room = asyncio.new_event_loop(), asyncio.Semaphore(self._at_once)
        self._loops.append(self._loop)
        threading.Thread(target=_run_loop, args=(self._loop,), name="environments", daemon=True).start()

    async def _call(
        self,
        room: asyncio.Semaphore,
        number: int,
        method: Callable[..., Any],
        arguments: tuple[Any, ...],
        seconds: float,
        name: str,
    ) -> None:
        async with room:
            if room is not self._room or number in self._deadlines:  # it has begun in another loop
                return
            begun = time.monotonic()
            self._deadlines[number] = begun + seconds + GRACE_S
            answer: Answer
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    answer = await answer_of(method, arguments)
            except TimeoutError as error:
                message = (
                    f"{method.__name__} did not answer within {seconds:g} s" if limit.expired() else _error_text(error)
                )
                answer = ScoreFailure("environment_timeout" if limit.expired() else "environment_failed", message, name)
            except BaseException as error:  # an environment that ends the process ends its episode
                answer = ScoreFailure("environment_failed", f"{method.__name__}: {_error_text(error)}", name)
            self._answers.put((number, answer, time.monotonic() - begun))


async def answer_of(method: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """What an environment's method answers: a coroutine in this loop, a plain one in a thread of its own."""
    if inspect.iscoroutinefunction(method):
        return await method(*arguments)
    answer = await _in_thread(method, arguments)
    return await answer if inspect.isawaitable(answer) else answer


async def _in_thread(method: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(answer: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(answer) if error is None else future.set_exception(error)

    def work() -> None:
        answer, error = None, None
        try:
            answer = method(*arguments)
        except BaseException as raised:
            # A future takes no StopIteration, and one that ends the process shall not end the loop.
            error = raised if isinstance(raised, Exception) else RuntimeError(_error_text(raised))
            error = RuntimeError(_error_text(raised)) if isinstance(raised, StopIteration) else error
        with suppress(RuntimeError):  # the loop is closed: it was given up
            loop.call_soon_threadsafe(settle, answer, error)

    threading.Thread(target=copy_context().run, args=(work,), name="environment", daemon=True).start()
    return await future


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped; then it gives back its files, and nothing is said of the coroutines in it."""
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
