"""The connection of an HTTP worker to one engine process, which is opened again when the engine has restarted.

Covers: calls and their cancellation, the engine's state, the work in progress there. Leaves out: the messages (`wire`),
the choice among engines and waiting for one that is away (`engine_client`), the other side (`engine_server`).
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from assay.errors import BusyError, LateError
from assay.system import tracing
from assay_serving.engine_process import wire
from assay_serving.engine_process.connection import FrameConnection

logger = logging.getLogger("assay.serving")

_RECONNECT_S = 0.2
_LONGEST_RETRY_S = 60.0


class EngineLostError(BusyError):
    """The engine ended, or the connection to it, before the call had a result."""


class EngineLink:
    """`changed` is called when the engine begins or ceases to accept calls."""

    def __init__(
        self, path: str, token: str, *, max_frame_bytes: int, changed: Callable[[], None], name: str = "the engine"
    ) -> None:
        self.name = name
        self.load = 0  #: characters of this worker's requests that are in progress there
        self.ready = False
        self._path = path
        self._token = token
        self._max_frame_bytes = max_frame_bytes
        self._changed = changed
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._connection: FrameConnection | None = None
        self._connector: asyncio.Task[None] | None = None
        self._accepted = self._was_accepted = self._closing = False
        self._loading_s = 2.0
        self._away_since = time.monotonic()

    @property
    def accepting(self) -> bool:
        return self._accepted and self._connection is not None and self._connection.open

    @property
    def state(self) -> str:
        if self._accepted:
            return "ready" if self.ready else "not ready"
        return "restarting" if self._was_accepted else "starting"

    def start(self) -> None:
        self._connector = asyncio.create_task(self._keep_connected(), name="engine-connection")

    def closing(self) -> None:
        """The worker drains: an engine that ends is no news."""
        self._closing = True

    async def stop(self) -> None:
        if self._connector is not None:
            self._connector.cancel()
            await asyncio.gather(self._connector, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
        self._fail_all("the server is stopping")

    @contextmanager
    def carrying(self, characters: int) -> Iterator[None]:
        """A request of this size is in progress there meanwhile."""
        self.load += characters
        try:
            yield
        finally:
            self.load -= characters

    async def call(self, method: str, argument: Any, result_type: Any, timeout_s: float | None) -> Any:
        """The method's result. Raises the engine's error, BusyError while the engine is away, LateError."""
        if self._connection is not None and self._connection.full:
            timeout_s = await self._until_writable(self._connection, timeout_s)
        connection = self._connection
        if connection is None or not self.accepting:
            raise self.away()
        call_id, loop = next(self._ids), asyncio.get_running_loop()
        done: asyncio.Future[wire.MethodResult | wire.MethodError] = loop.create_future()
        encoded = b"" if argument is None else wire.encode(argument)
        frame = wire.encode(wire.MethodCall(call_id, method, encoded, tracing.headers().get("traceparent", "")))
        self._pending[call_id] = done
        late = None if timeout_s is None else loop.call_later(timeout_s, _set_late, done, timeout_s)
        try:
            connection.send(frame, limit=self._max_frame_bytes)
            reply = await done
        finally:
            if late is not None:
                late.cancel()
            if self._pending.pop(call_id, None) is not None and connection.open:
                connection.send(wire.encode(wire.Cancel(call_id)), limit=self._max_frame_bytes)
        if isinstance(reply, wire.MethodError):
            raise wire.exception_of(reply)
        return wire.decode(reply.result, result_type)

    async def _until_writable(self, connection: FrameConnection, timeout_s: float | None) -> float | None:
        """What is left of the time then. Raises LateError."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                await connection.writable()
        except TimeoutError:
            raise LateError(f"not answered within {timeout_s:g} s") from None
        return None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - began))

    def away(self) -> BusyError:
        return BusyError(f"{self.name} is {self.state}", retry_after=self.retry_after)

    @property
    def retry_after(self) -> float:
        """Seconds until the engine should be back, by how long its models took to load."""
        remaining = self._loading_s - (time.monotonic() - self._away_since)
        return min(_LONGEST_RETRY_S, max(1.0, remaining))

    async def _keep_connected(self) -> None:
        while True:
            new = partial(FrameConnection, self._received, limit=self._max_frame_bytes)
            try:
                _, connection = await asyncio.get_running_loop().create_unix_connection(new, self._path)
            except OSError:
                await asyncio.sleep(_RECONNECT_S)
                continue
            # The supervisor owns the socket: an engine that is still loading accepts this connection afterwards.
            self._connection = connection
            connection.send(wire.encode(wire.Hello(self._token)), limit=self._max_frame_bytes)
            if (error := await asyncio.shield(connection.closed)) is not None:
                logger.error("the connection between HTTP worker and engine is closed: %s", error)
            self._lost()
            await asyncio.sleep(_RECONNECT_S)

    def _received(self, frame: bytes) -> None:
        message: wire.ToWorker = wire.decode(frame, wire.ToWorker)
        if isinstance(message, wire.EngineState):
            if message.ready and not self.ready:
                logger.info("%s is ready", self.name)
            self.ready, self._loading_s = message.ready, message.loading_s
            self._accepted = self._was_accepted = True
            self._changed()
            return
        done = self._pending.pop(message.id, None)
        if done is not None and not done.done():
            done.set_result(message)

    def _lost(self) -> None:
        if self.ready and not self._closing:
            logger.warning("%s is gone, with %d requests", self.name, len(self._pending))
        self._accepted = self.ready = False
        self._connection = None
        self._away_since = time.monotonic()
        self._changed()
        self._fail_all(f"{self.name} is restarting")

    def _fail_all(self, reason: str) -> None:
        pending, self._pending = self._pending, {}
        for done in pending.values():
            if not done.done():
                done.set_exception(EngineLostError(reason, retry_after=self.retry_after))


def _set_late(done: asyncio.Future[Any], timeout_s: float) -> None:
    if not done.done():
        done.set_exception(LateError(f"not answered within {timeout_s:g} s"))
