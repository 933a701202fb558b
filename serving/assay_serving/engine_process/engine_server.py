"""The engine's side of its connections to the HTTP workers.

Covers: the token, one task per call of a `ScoringBackend` method, cancellation, notifying workers when the backend's
readiness changes, a stop that finishes calls in progress. Leaves out: the messages (`wire`), the models (the backend).
"""

import asyncio
import hmac
import logging
import socket
import traceback
from typing import Any

from assay.errors import AssayError, BackendError
from assay.system import tracing
from assay_serving.engine_process import wire
from assay_serving.engine_process.connection import HELLO_BYTES, FrameConnection
from assay_serving.server.core.scoring_backend import ChatRequest, Client, TokenRequest
from assay_serving.server.in_process import InProcessBackend

logger = logging.getLogger("assay.serving")

HELLO_S = 5.0  #: for the token of a new connection
_WATCH_S = 0.25
_METHODS = {
    "chat": ChatRequest,
    "tokenize": TokenRequest,
    "manage": dict[str, Any],
    "models": None,
    "missing_models": None,
    "metrics": None,
    "reserve": tuple[Client, int, bool],
}


class EngineServer:
    """Serves one backend to HTTP workers. `loading_s`: how long its models took to load."""

    def __init__(self, backend: InProcessBackend, token: str, *, max_frame_bytes: int, loading_s: float = 0.0) -> None:
        self.backend = backend
        self.token = token
        self.max_frame_bytes = max_frame_bytes
        self.loading_s = loading_s
        self.workers: set[_WorkerConnection] = set()
        self._server: asyncio.AbstractServer | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept workers. The backend must have been started."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _WorkerConnection(self).connection, sock=listening)
        self._watcher = asyncio.create_task(self._watch(), name="readiness")

    async def stop(self, within: float) -> None:
        """Accept no new worker, finish calls in progress for at most `within` seconds, then close."""
        if self._server is not None:
            self._server.close()
        if self._watcher is not None:
            self._watcher.cancel()
        if tasks := [task for worker in self.workers for task in worker.tasks.values()]:
            await asyncio.wait(tasks, timeout=within)
        for worker in list(self.workers):
            worker.connection.close()

    def state(self) -> wire.EngineState:
        return wire.EngineState(self.backend.ready, self.loading_s)

    async def _watch(self) -> None:
        ready = self.backend.ready
        while True:
            await asyncio.sleep(_WATCH_S)
            if self.backend.ready != ready:
                ready = self.backend.ready
                for worker in self.workers:
                    worker.send_state()


class _WorkerConnection:
    """One connection: a worker's token, then its calls, each in its own task."""

    def __init__(self, server: EngineServer) -> None:
        self.server = server
        self.connection = FrameConnection(self._received, limit=HELLO_BYTES)
        self.connection.closed.add_done_callback(self._ended)
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._no_token = self._loop.call_later(HELLO_S, self.connection.abort)

    def _ended(self, closed: "asyncio.Future[AssayError | None]") -> None:
        """Either side has closed the connection, or a message was none."""
        if (error := closed.result()) is not None:
            logger.error("the connection between HTTP worker and engine is closed: %s", error)
        self._no_token.cancel()
        self.server.workers.discard(self)
        for task in self.tasks.values():
            task.cancel()

    def _received(self, frame: bytes) -> None:
        message: wire.ToEngine = wire.decode(frame, wire.ToEngine)
        if self not in self.server.workers:
            self._authenticate(message)
        elif isinstance(message, wire.Cancel):
            if task := self.tasks.get(message.id):
                task.cancel()
        elif isinstance(message, wire.Hello) or message.id in self.tasks:
            raise BackendError("an unexpected message")
        else:
            call_id = message.id
            task = self._loop.create_task(self._run(message))
            self.tasks[call_id] = task
            task.add_done_callback(lambda _: self.tasks.pop(call_id, None))

    def send_state(self) -> None:
        self.connection.send(wire.encode(self.server.state()), limit=self.server.max_frame_bytes)

    def _authenticate(self, message: wire.ToEngine) -> None:
        token = self.server.token.encode()
        if not isinstance(message, wire.Hello) or not hmac.compare_digest(message.token.encode(), token):
            raise BackendError("a connection without the token")
        self._no_token.cancel()
        self.connection.limit = self.server.max_frame_bytes
        self.server.workers.add(self)
        self.send_state()

    async def _run(self, call: wire.MethodCall) -> None:
        limit = self.server.max_frame_bytes
        try:
            if call.traceparent:
                with tracing.span(f"engine {call.method}", call.traceparent):
                    result = await self._result(call)
            else:
                result = await self._result(call)
            frame = wire.encode(wire.MethodResult(call.id, wire.encode(result)))
            if len(frame) > limit:
                raise BackendError(
                    f"the result has {len(frame)} bytes; engine and HTTP worker exchange {limit} at most"
                )
        except AssayError as error:
            frame = wire.encode(wire.method_error(call.id, error))
        except Exception as error:
            # The message may quote the client: only the type and the traceback are logged.
            trace = "".join(traceback.format_tb(error.__traceback__))
            logger.error("a request failed: %s\n%s", type(error).__name__, trace)
            frame = wire.encode(wire.MethodError(call.id, "", ""))
        if self.connection.full:
            await self.connection.writable()
        self.connection.send(frame, limit=limit)

    async def _result(self, call: wire.MethodCall) -> Any:
        backend = self.server.backend
        if call.method == "score":
            request = wire.score_request(wire.decode(call.argument, wire.SharedRequest))
            return wire.typed_response(await backend.score(request))
        if call.method not in _METHODS:
            raise BackendError("no such method")
        kind = _METHODS[call.method]
        if call.method == "reserve":
            return backend.reserve(*wire.decode(call.argument, kind))
        arguments = () if kind is None else (wire.decode(call.argument, kind),)
        return await getattr(backend, call.method)(*arguments)
