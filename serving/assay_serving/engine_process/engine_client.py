"""The backend of an HTTP worker, whose models run in the engine process.

Covers: `EngineClient`, which calls the engine over a Unix socket and reconnects when the engine has restarted. Leaves
out: the messages (`wire`), the other side (`engine_server`), noticing that an engine hangs (`supervisor`).

While the engine is away, requests wait for the next one up to their deadline, those in progress included: scoring twice
changes nothing. Then they fail with BusyError (503, Retry-After), as do at once administrators' orders and what was in
progress at `MOST_LOSSES` engines, because it may be what ends them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from assay.errors import AssayError, BackendError, BusyError, LateError
from assay_serving.engine_process import wire
from assay_serving.engine_process.connection import BUFFER_BYTES, FrameConnection
from assay_serving.scorer import ModelInfo
from assay_serving.server.core.scoring_backend import (
    ChatRequest,
    ChatResponse,
    ScoreRequest,
    ScoreResponse,
    TokenRequest,
    TokenResponse,
)

logger = logging.getLogger("assay.serving")

T = TypeVar("T")

MOST_LOSSES = 3  #: engines that may end while one request is in progress

_RECONNECT_S = 0.2
_GRACE_S = 5.0  # for the engine to report a timeout itself
_QUERY_S = 30.0  # for calls that need no model
_METRICS_S = 2.0
_LONGEST_RETRY_S = 60.0


class _EngineLostError(BusyError):
    """The engine ended, or the connection to it, before the call had a result."""


class EngineClient:
    """A `ScoringBackend` at the other end of a Unix socket."""

    def __init__(self, path: str, token: str, *, max_frame_bytes: int) -> None:
        self._path = path
        self._token = token
        self._max_frame_bytes = max_frame_bytes
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._connection: FrameConnection | None = None
        self._connector: asyncio.Task[None] | None = None
        self._accepted = self._engine_ready = self._was_accepted = self.draining = False
        self._may_go_on = asyncio.Event()  # requests that wait for the engine: it accepts calls, or none will again
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
        if self._accepted:
            return "not ready"
        return "restarting" if self._was_accepted else "starting"

    async def start(self) -> None:
        self._connector = asyncio.create_task(self._keep_connected(), name="engine-connection")

    async def stop(self) -> None:
        self.drain()
        if self._connector is not None:
            self._connector.cancel()
            await asyncio.gather(self._connector, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
        self._fail_all("the server is stopping")

    def drain(self) -> None:
        """This worker accepts no new work and waits for no other engine; the engine still serves the others."""
        self.draining = True
        self._may_go_on.set()

    async def models(self) -> list[ModelInfo]:
        models: list[ModelInfo] = await self._query("models", None, list[ModelInfo])
        return models

    async def missing_models(self) -> dict[str, str]:
        reasons: dict[str, str] = await self._query("missing_models", None, dict[str, str])
        return reasons

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        self._check_draining()

        async def call(seconds: float) -> ScoreResponse:
            argument = wire.shared_request(replace(request, timeout_s=seconds))
            return wire.score_response(await self._call("score", argument, wire.TypedResponse, seconds + _GRACE_S))

        response = await self._through_restarts(call, request.timeout_s)
        if len(response.results) != len(request.items):
            raise BackendError(f"{len(response.results)} results for {len(request.items)} items")
        return response

    async def chat(self, request: ChatRequest) -> ChatResponse:
        self._check_draining()

        async def call(seconds: float) -> ChatResponse:
            argument = replace(request, timeout_s=seconds)
            response: ChatResponse = await self._call("chat", argument, ChatResponse, seconds + _GRACE_S)
            return response

        return await self._through_restarts(call, request.timeout_s)

    async def tokenize(self, request: TokenRequest) -> TokenResponse:
        self._check_draining()
        response: TokenResponse = await self._query("tokenize", request, TokenResponse)
        return response

    async def manage(self, order: dict[str, Any]) -> dict[str, Any]:
        """Without a time limit, because loading a model may take long, and only once: BusyError where the engine is
        away or ends meanwhile."""
        outcome: dict[str, Any] = await self._call("manage", order, dict[str, Any], None)
        return outcome

    async def metrics(self) -> bytes:
        """Empty while the engine is away or hangs: the worker's own counters are still reported."""
        try:
            text: bytes = await self._call("metrics", None, bytes, _METRICS_S)
        except (BusyError, LateError):
            return b""
        return text

    async def _query(self, method: str, argument: Any, result_type: Any) -> Any:
        """A call that needs no model."""
        return await self._through_restarts(
            lambda seconds: self._call(method, argument, result_type, seconds), _QUERY_S
        )

    async def _through_restarts(self, call: Callable[[float], Awaitable[T]], timeout_s: float) -> T:
        """The result of `call`, which gets the seconds that are left, and is made again at the next engine where one
        is lost meanwhile. Raises what it raises, BusyError where the engine is not back in time."""
        deadline = time.monotonic() + timeout_s
        losses = 0
        while True:
            await self._until_accepted(deadline)
            try:
                return await call(max(0.0, deadline - time.monotonic()))
            except _EngineLostError:
                losses += 1
                if self.draining or losses == MOST_LOSSES:
                    raise

    async def _until_accepted(self, deadline: float) -> None:
        """Returns when the engine accepts calls. Raises BusyError at the deadline, and while draining."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline - time.monotonic()):
                while not (self._accepting or self.draining):
                    await self._may_go_on.wait()
                    await asyncio.sleep(0)  # the end of a connection that closes is noticed in the loop
        if not self._accepting:
            raise self._away()

    async def _call(self, method: str, argument: Any, result_type: Any, timeout_s: float | None) -> Any:
        """The method's result. Raises the engine's error, BusyError while the engine is away, LateError."""
        connection = self._connection
        if connection is None or not self._accepting:
            raise self._away()
        call_id = next(self._ids)
        done: asyncio.Future[wire.MethodResult | wire.MethodError] = asyncio.get_running_loop().create_future()
        encoded = b"" if argument is None else wire.encode(argument)
        frame = wire.encode(wire.MethodCall(call_id, method, encoded))
        self._pending[call_id] = done
        try:
            async with asyncio.timeout(timeout_s):
                await connection.writable()
                connection.send(frame, limit=self._max_frame_bytes)
                reply = await done
        except TimeoutError:
            raise LateError(f"not answered within {timeout_s:g} s") from None
        finally:
            if self._pending.pop(call_id, None) is not None and connection.open:
                connection.send(wire.encode(wire.Cancel(call_id)), limit=self._max_frame_bytes)
        if isinstance(reply, wire.MethodError):
            raise wire.exception_of(reply)
        return wire.decode(reply.result, result_type)

    async def _keep_connected(self) -> None:
        while True:
            try:
                streams = await asyncio.open_unix_connection(self._path, limit=BUFFER_BYTES)
            except OSError:
                await asyncio.sleep(_RECONNECT_S)
                continue
            # The supervisor owns the socket: an engine that is still loading accepts this connection afterwards.
            self._connection = connection = FrameConnection(*streams)
            connection.send(wire.encode(wire.Hello(self._token)), limit=self._max_frame_bytes)
            try:
                while (frame := await connection.receive(self._max_frame_bytes)) is not None:
                    self._received(wire.decode(frame, wire.ToWorker))
            except AssayError as error:
                logger.error("the connection between HTTP worker and engine is closed: %s", error)
            connection.abort()
            self._lost()
            await asyncio.sleep(_RECONNECT_S)

    def _received(self, message: wire.ToWorker) -> None:
        if isinstance(message, wire.EngineState):
            if message.ready and not self._engine_ready:
                logger.info("the engine is ready")
            self._engine_ready, self._loading_s = message.ready, message.loading_s
            self._accepted = self._was_accepted = True
            self._may_go_on.set()
            return
        done = self._pending.pop(message.id, None)
        if done is not None and not done.done():
            done.set_result(message)

    def _lost(self) -> None:
        if self._engine_ready and not self.draining:
            logger.warning("the engine is gone, with %d requests", len(self._pending))
        self._accepted = self._engine_ready = False
        self._connection = None
        if not self.draining:
            self._may_go_on.clear()
        self._away_since = time.monotonic()
        self._fail_all("the engine is restarting")

    def _check_draining(self) -> None:
        if self.draining:
            raise BusyError("the server is draining", retry_after=2)

    def _fail_all(self, reason: str) -> None:
        pending, self._pending = self._pending, {}
        for done in pending.values():
            if not done.done():
                done.set_exception(_EngineLostError(reason, retry_after=self._retry_after()))

    @property
    def _accepting(self) -> bool:
        return self._accepted and self._connection is not None and self._connection.open

    def _away(self) -> BusyError:
        return BusyError(f"the engine is {self._engine_state}", retry_after=self._retry_after())

    def _retry_after(self) -> float:
        """Seconds until the engine should be back, by how long its models took to load."""
        remaining = self._loading_s - (time.monotonic() - self._away_since)
        return min(_LONGEST_RETRY_S, max(1.0, remaining))
