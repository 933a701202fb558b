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
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeAlias

from assay.score import ScoreFailure

#: Seconds beyond its limit after which an answer is no longer awaited: its event loop is blocked.
GRACE_S = 2.0
Answer: TypeAlias = Any | ScoreFailure


class EnvironmentCalls:
    """Calls by number. `at_once`: that run at the same time; the others wait, which is not in their time."""

    def __init__(self, at_once: int) -> None:
        self._answers: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
        self._deadlines: dict[int, float] = {}  #: of those under way
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(at_once)
        threading.Thread(target=self._loop.run_forever, name="environments", daemon=True).start()

    def __len__(self) -> int:
        """Calls that have no answer yet."""
        return len(self._deadlines)

    def start(self, number: int, method: Callable[..., Any], *arguments: Any, seconds: float, name: str) -> None:
        """Call it. At most one call of a number is under way."""
        self._deadlines[number] = float("inf")
        asyncio.run_coroutine_threadsafe(self._call(number, method, arguments, seconds, name), self._loop)

    def take(self, *, wait: bool) -> list[tuple[int, Answer]]:
        """The answers there are. `wait`: until there is one."""
        taken: list[tuple[int, Answer]] = []
        while self._deadlines:
            try:
                number, answer = self._answers.get(block=wait and not taken, timeout=0.2 if wait else None)
            except queue.Empty:
                taken += self._overdue()
                if taken or not wait:
                    break
                continue
            if self._deadlines.pop(number, None) is not None:  # else it was given up
                taken.append((number, answer))
        return taken

    def close(self) -> None:
        """End the loop; what is still under way is given up."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _overdue(self) -> list[tuple[int, Answer]]:
        now = time.monotonic()
        late = [number for number, deadline in self._deadlines.items() if deadline < now]
        if late:  # the loop is blocked: those that wait for room in it would never begin
            late = [number for number in self._deadlines if number in late or self._deadlines[number] == float("inf")]
        for number in late:
            del self._deadlines[number]
        return [(number, ScoreFailure("environment_timeout", "its event loop is blocked")) for number in late]

    async def _call(
        self, number: int, method: Callable[..., Any], arguments: tuple[Any, ...], seconds: float, name: str
    ) -> None:
        async with self._room:
            if number not in self._deadlines:
                return
            self._deadlines[number] = time.monotonic() + seconds + GRACE_S
            answer: Answer
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    answer = await self._answer(method, arguments)
            except TimeoutError as error:
                said = f"{method.__name__} did not answer within {seconds:g} s" if limit.expired() else _said(error)
                answer = ScoreFailure("environment_timeout" if limit.expired() else "environment_failed", said, name)
            except BaseException as error:  # an environment that ends the process ends its episode
                answer = ScoreFailure("environment_failed", f"{method.__name__}: {_said(error)}", name)
            self._answers.put((number, answer))

    async def _answer(self, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if inspect.iscoroutinefunction(method):
            return await method(*arguments)
        answer = await self._in_thread(method, arguments)
        return await answer if inspect.isawaitable(answer) else answer

    async def _in_thread(self, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
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
                error = raised if isinstance(raised, Exception) else RuntimeError(_said(raised))
                error = RuntimeError(_said(raised)) if isinstance(raised, StopIteration) else error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, answer, error)

        threading.Thread(target=copy_context().run, args=(work,), name="environment", daemon=True).start()
        return await future


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
