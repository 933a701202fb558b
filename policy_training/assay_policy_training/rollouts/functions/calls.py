"""Calls of a function that may hang, each for a limited time, outside the trainer's thread.

Covers: plain functions, one call after another in a thread; coroutines, several at once in one event loop that stays,
so that a client opened in an earlier step still works. Python cannot end a thread: a call that hangs is left running,
and is named; once `MOST_STUCK` are, the function is not called until one of them has ended. Leaves out: a call that
hangs inside an extension without releasing the interpreter lock, which nothing in this process can leave behind.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

log = logging.getLogger(__name__)
CONCURRENT = 32  #: coroutines at once
MOST_STUCK = 4  #: calls left running at most
GRACE_S = 1.0  #: for the loop itself, beyond the limit of its coroutines
Call = Callable[[], Any]


class CallError(Exception):
    """Why a call gave nothing. `code`: raised, timeout."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TimedCalls:
    """`name`: of the function, for messages. `limit`: seconds of one call."""

    def __init__(self, name: str, limit: float) -> None:
        self.name, self.limit = name, limit
        self._stuck: list[threading.Thread] = []
        self._loop: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Of each call its value, or the CallError that says why there is none."""
        outcomes: list[Any] = []
        while len(outcomes) < len(calls):
            if self._blocked():
                return outcomes + [self._refusal()] * (len(calls) - len(outcomes))
            answers: SimpleQueue[Any] = SimpleQueue()
            abandoned = threading.Event()
            arguments = (calls[len(outcomes) :], answers, abandoned)
            thread = threading.Thread(target=_work, args=arguments, daemon=True, name=f"reward {self.name}")
            thread.start()
            while len(outcomes) < len(calls):
                try:
                    outcomes.append(answers.get(timeout=self.limit))
                except Empty:
                    abandoned.set()
                    outcomes.append(self._timed_out(thread))
                    break
        return outcomes

    def run_async(self, calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        """`run` for coroutine functions."""
        if self._blocked():
            return [self._refusal()] * len(calls)
        answers: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        loop, thread = self._loop = self._loop or _started_loop(self.name)
        together = asyncio.run_coroutine_threadsafe(_all(calls, self.limit, answers), loop)
        by_call: dict[int, Any] = {}
        while len(by_call) < len(calls):
            try:
                number, outcome = answers.get(timeout=self.limit + GRACE_S)
            except Empty:  # not one coroutine came back within its limit: the loop itself is blocked
                together.cancel()
                loop.call_soon_threadsafe(loop.stop)
                self._loop, failed = None, self._timed_out(thread)
                return [by_call.get(number, failed) for number in range(len(calls))]
            by_call[number] = outcome
        together.result(GRACE_S)
        return [by_call[number] for number in range(len(calls))]

    def close(self) -> None:
        """End the event loop; calls that hang stay as they are."""
        if self._loop is not None:
            self._loop[0].call_soon_threadsafe(self._loop[0].stop)
            self._loop = None

    def _blocked(self) -> bool:
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        return len(self._stuck) >= MOST_STUCK

    def _refusal(self) -> CallError:
        return CallError("timeout", f"not called: {MOST_STUCK} earlier calls are still running")

    def _timed_out(self, thread: threading.Thread) -> CallError:
        self._stuck.append(thread)
        running = sum(stuck.is_alive() for stuck in self._stuck)
        log.warning("reward %s: no answer in %g s; calls left running: %d", self.name, self.limit, running)
        return CallError("timeout", f"no answer in {self.limit:g} s (--reward-timeout)")


def _work(calls: Sequence[Call], answers: "SimpleQueue[Any]", abandoned: threading.Event) -> None:
    for call in calls:
        if abandoned.is_set():
            return
        try:
            answers.put(call())
        except BaseException as error:  # sys.exit() in a reward fails its row too
            answers.put(_raised(error))


async def _all(
    calls: Sequence[Callable[[], Awaitable[Any]]], limit: float, answers: "SimpleQueue[tuple[int, Any]]"
) -> None:
    gate = asyncio.Semaphore(CONCURRENT)

    async def one(number: int, call: Callable[[], Awaitable[Any]]) -> None:
        async with gate:
            try:
                async with asyncio.timeout(limit) as deadline:
                    answer = await call()
            except BaseException as error:
                timed_out = isinstance(error, TimeoutError) and deadline.expired()
                late = CallError("timeout", f"no answer in {limit:g} s (--reward-timeout)")
                answers.put((number, late if timed_out else _raised(error)))
            else:
                answers.put((number, answer))

    await asyncio.gather(*(one(number, call) for number, call in enumerate(calls)))


def _raised(error: BaseException) -> CallError:
    where, trace = "", error.__traceback__ and error.__traceback__.tb_next  # the first frame is of this module
    while trace is not None:
        where, trace = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})", trace.tb_next
    return CallError("raised", f"{type(error).__name__}: {' '.join(str(error).split())}{where}")


def _started_loop(name: str) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run_and_close, args=(loop,), daemon=True, name=f"reward {name}")
    thread.start()
    return loop, thread


def _run_and_close(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped; what is still pending is cancelled, and not waited for."""
    try:
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
