"""The models of another process, behind the same interface as those of this one.

Covers: `EngineClient`, which sends requests to the engine process, gives the answers to who waits for them, and finds
the engine again when it was restarted. Leaves out: the messages (`wire`), what answers them (`endpoint`).

While the engine is away every request is refused with BusyError (503, Retry-After), those in progress too: a request
has one answer, and it is a score, a failure or that.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import Any, TypeVar

from assay.errors import BackendError, BusyError, LateError
from assay_serving.engine_process import wire
from assay_serving.engine_process.connection import FrameConnection
from assay_serving.scorer import ModelInfo
from assay_serving.server.core.scoring_backend import ChatRequest, ChatResponse, ScoreRequest, ScoreResponse

M = TypeVar("M", bound=wire.Message)

logger = logging.getLogger("assay.serving")

_AGAIN_S = 0.2  # between tries to reach a socket that nobody listens on
_GRACE_S = 5.0  # that the engine has beyond a request's own time to say that it is late
_INQUIRY_S = 30.0  # for what the engine answers without a model
_LONGEST_RETRY_S = 60.0


class EngineClient:
    """A `ScoringBackend` whose models are at the other end of a Unix socket."""

    def __init__(self, path: str, token: str, *, frame_bytes: int) -> None:
        self._path = path
        self._token = token
        self._frame_bytes = frame_bytes
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._connection: FrameConnection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._welcomed = self._engine_ready = self._seen = self.draining = False
        self._loading_s = 2.0
        self._away_since = time.monotonic()

    @property
    def ready(self) -> bool:
        return self._engine_ready and not self.draining

    @property
    def state(self) -> str:
        """Ready, or why not, in a few words."""
        if self.draining:
            return "draining"
        return "ready" if self._engine_ready else f"the engine is {self._engine_state}"

    @property
    def _engine_state(self) -> str:
        if self._welcomed:
            return "not ready"
        return "restarting" if self._seen else "starting"

    async def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep_connected(), name="engine-link")

    async def stop(self) -> None:
        self.drain()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
        self._fail_all("the server is stopping")

    def drain(self) -> None:
        """This front accepts no new work; the engine goes on for the others."""
        self.draining = True

    async def models(self) -> list[ModelInfo]:
        return (await self._ask_models()).infos

    async def missing_models(self) -> dict[str, str]:
        return (await self._ask_models()).absent

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        if self.draining:
            raise BusyError("the server is draining", retry_after=2)
        message = await self._ask(wire.ask_score(next(self._numbers), request), request.timeout_s + _GRACE_S)
        answer = wire.score_answer(_expected(wire.Scored, message))
        if len(answer.results) != len(request.items):
            raise BackendError(f"{len(answer.results)} results for {len(request.items)} items")
        return answer

    async def chat(self, request: ChatRequest) -> ChatResponse:
        if self.draining:
            raise BusyError("the server is draining", retry_after=2)
        message = await self._ask(wire.AskChat(next(self._numbers), request), request.timeout_s + _GRACE_S)
        return _expected(wire.Chatted, message).answer

    async def manage(self, order: dict[str, Any]) -> dict[str, Any]:
        """Without a bound on its time: loading a model takes what it takes."""
        message = await self._ask(wire.AskManage(next(self._numbers), order), None)
        return _expected(wire.Managed, message).outcome

    async def metrics(self) -> bytes:
        """Empty while the engine is away: the front's own counters are still told."""
        try:
            message = await self._ask(wire.AskMetrics(next(self._numbers)), _INQUIRY_S)
        except BusyError:
            return b""
        return _expected(wire.Metrics, message).text

    async def _ask(self, message: wire.Question, within: float | None) -> wire.Answered:
        """The answer. Raises the error that the engine answered with, BusyError where it is away, LateError."""
        connection = self._connection
        if connection is None or not self._welcomed or not connection.open:
            raise BusyError(f"the engine is {self._engine_state}", retry_after=self._retry_after())
        done: asyncio.Future[wire.Answered] = asyncio.get_running_loop().create_future()
        frame = wire.encode(message)
        self._waiting[message.id] = done
        try:
            async with asyncio.timeout(within):
                await connection.room()
                connection.send(frame, limit=self._frame_bytes)
                answer = await done
        except TimeoutError:
            raise LateError(f"not answered within {within:g} s") from None
        finally:
            if self._waiting.pop(message.id, None) is not None and connection.open:
                connection.send(wire.encode(wire.Cancel(message.id)), limit=self._frame_bytes)
        if isinstance(answer, wire.Refused):
            raise wire.error_of(answer)
        return answer

    async def _ask_models(self) -> wire.Models:
        return _expected(wire.Models, await self._ask(wire.AskModels(next(self._numbers)), _INQUIRY_S))

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._gone.clear()
            try:
                _, connection = await loop.create_unix_connection(
                    lambda: FrameConnection(lambda _: self, limit=self._frame_bytes), self._path
                )
            except OSError:
                await asyncio.sleep(_AGAIN_S)
                continue
            # The socket is the supervisor's: an engine that still loads takes this connection when it has loaded.
            self._connection = connection
            connection.send(wire.encode(wire.Hello(self._token)), limit=self._frame_bytes)
            await self._gone.wait()
            self._connection = None
            await asyncio.sleep(_AGAIN_S)

    def received(self, frame: bytes) -> None:
        message = wire.decode_answered(frame)
        if isinstance(message, wire.State):
            if message.ready and not self._engine_ready:
                logger.info("the engine is ready")
            self._engine_ready, self._loading_s = message.ready, message.loading_s
            self._welcomed = self._seen = True
            return
        done = self._waiting.pop(message.id, None)
        if done is not None and not done.done():
            done.set_result(message)

    def lost(self) -> None:
        if self._engine_ready and not self.draining:
            logger.warning("the engine is gone, with %d requests", len(self._waiting))
        self._welcomed = self._engine_ready = False
        self._connection = None
        self._away_since = time.monotonic()
        self._fail_all("the engine is restarting")
        self._gone.set()

    def _fail_all(self, why: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            if not done.done():
                done.set_exception(BusyError(why, retry_after=self._retry_after()))

    def _retry_after(self) -> float:
        """Seconds until the engine should be back, judging by how long its models took to load."""
        left = self._loading_s - (time.monotonic() - self._away_since)
        return min(_LONGEST_RETRY_S, max(1.0, left))


def _expected(kind: type[M], message: wire.Answered) -> M:
    if not isinstance(message, kind):
        raise BackendError(f"the engine answered {type(message).__name__} where {kind.__name__} was due")
    return message
