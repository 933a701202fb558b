"""The engine's end of its connections to the fronts.

Covers: the token, one task a request on a `ScoringBackend`, cancellation, telling the fronts when the host's readiness
changes, a stop that answers what is in progress. Leaves out: the messages (`wire`), the models (the host).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import traceback
from collections.abc import Awaitable

from assay.errors import AssayError, BackendError
from assay_serving.engine_process import wire
from assay_serving.engine_process.connection import HELLO_BYTES, FrameConnection
from assay_serving.server.core.scoring_backend import ScoringBackend

logger = logging.getLogger("assay.serving")

HELLO_S = 5.0  #: that a connection has to say its token
_WATCH_S = 0.25


class Endpoint:
    """Answers fronts from one host. `loading_s`: how long its models took to load, and the next engine may."""

    def __init__(
        self,
        host: ScoringBackend,
        token: str,
        *,
        frame_bytes: int,
        loading_s: float = 0.0,
    ) -> None:
        self.host = host
        self.token = token
        self.frame_bytes = frame_bytes
        self.loading_s = loading_s
        self.fronts: set[_Front] = set()
        self._server: asyncio.AbstractServer | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept fronts. The host must have been started."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: FrameConnection(lambda connection: _Front(self, connection), limit=HELLO_BYTES), sock=listening
        )
        self._watcher = asyncio.create_task(self._watch(), name="readiness")

    async def stop(self, within: float) -> None:
        """Accept no new front, answer what is in progress for at most `within` seconds, then hang up."""
        if self._server is not None:
            self._server.close()
        if self._watcher is not None:
            self._watcher.cancel()
        if tasks := [task for front in self.fronts for task in front.tasks.values()]:
            await asyncio.wait(tasks, timeout=within)
        for front in list(self.fronts):
            front.connection.close()

    def state(self) -> wire.State:
        return wire.State(self.host.ready, self.loading_s)

    async def _watch(self) -> None:
        told = self.host.ready
        while True:
            await asyncio.sleep(_WATCH_S)
            if self.host.ready != told:
                told = self.host.ready
                for front in self.fronts:
                    front.send(self.state())


class _Front:
    """One connection: a front's requests, each in a task of its own."""

    def __init__(self, endpoint: Endpoint, connection: FrameConnection) -> None:
        self.endpoint = endpoint
        self.connection = connection
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._known = False
        self._hello = asyncio.get_running_loop().call_later(HELLO_S, connection.abort)

    def received(self, frame: bytes) -> None:
        message = wire.decode_asked(frame)
        if not self._known:
            self._greet(message)
        elif isinstance(message, wire.Cancel):
            if task := self.tasks.get(message.id):
                task.cancel()
        elif isinstance(message, wire.Hello) or message.id in self.tasks:
            raise BackendError("a message out of place")
        else:
            task = asyncio.get_running_loop().create_task(self._answer(message.id, self._work(message)))
            self.tasks[message.id] = task
            task.add_done_callback(lambda _: self.tasks.pop(message.id, None))

    def lost(self) -> None:
        self._hello.cancel()
        self.endpoint.fronts.discard(self)
        for task in self.tasks.values():
            task.cancel()

    def send(self, message: wire.Message) -> None:
        self.connection.send(wire.encode(message), limit=self.endpoint.frame_bytes)

    def _greet(self, message: wire.Asked) -> None:
        self._hello.cancel()
        if not isinstance(message, wire.Hello) or not hmac.compare_digest(
            message.token.encode(), self.endpoint.token.encode()
        ):
            raise BackendError("a connection without the token")
        self._known = True
        self.connection.raise_limit(self.endpoint.frame_bytes)
        self.endpoint.fronts.add(self)
        self.send(self.endpoint.state())

    async def _answer(self, number: int, work: Awaitable[wire.Message]) -> None:
        limit = self.endpoint.frame_bytes
        try:
            frame = wire.encode(await work)
            if len(frame) > limit:
                raise BackendError(f"the answer has {len(frame)} bytes; between engine and front go {limit} at most")
        except AssayError as error:
            frame = wire.encode(wire.refused(number, error))
        except Exception as error:
            # The message may quote the caller: only the type and the places are logged.
            trace = "".join(traceback.format_tb(error.__traceback__))
            logger.error("a request failed: %s\n%s", type(error).__name__, trace)
            frame = wire.encode(wire.Refused(number, "", ""))
        await self.connection.room()
        self.connection.send(frame, limit=limit)

    async def _work(self, message: wire.Asked) -> wire.Message:
        host = self.endpoint.host
        if isinstance(message, wire.AskScore):
            return wire.scored(message.id, await host.score(wire.score_request(message)))
        if isinstance(message, wire.AskChat):
            return wire.Chatted(message.id, await host.chat(message.request))
        if isinstance(message, wire.AskManage):
            return wire.Managed(message.id, await host.manage(message.order))
        if isinstance(message, wire.AskModels):
            return wire.Models(message.id, await host.models(), await host.missing_models())
        if isinstance(message, wire.AskMetrics):
            return wire.Metrics(message.id, await host.metrics())
        raise BackendError("no request")
