"""What every request passes before its route: a body bounded in bytes, time and shape; unforeseen errors as problems.

Whoever reaches the server may send a body before anybody knows who they are: it is read here, whole, before anything
makes sense of it. Leaves out: other sites (`access.same_origin`), threads (`lanes`), slow headers
(`assay_serving.server.connections`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay_serving.server.problems import CLIENT_GONE, ProblemError
from assay_serving.server.strict_json import JsonError, NotJsonError, TooManyValuesError, parse
from assay_web.access.audit import SAFE
from assay_web.server.settings import BodyLimits

log = logging.getLogger(__name__)

_API = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_CLOSE = {"Connection": "close"}


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self.app = app
        self.limits = limits
        self._buffered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no route speaks websocket
            await send({"type": "websocket.close", "code": 1008})
            return
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        own = _API if scope["path"].startswith("/api/") else []
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        try:
            try:
                await self._pass(scope, receive, answer)
            except ProblemError as problem:
                await problem.response(request_id)(scope, receive, answer)
        except Exception as error:
            # The message may quote what somebody wrote: only the type and the places are logged.
            trace = "".join(traceback.format_tb(error.__traceback__))
            log.error("request %s: %s\n%s", request_id, type(error).__name__, trace)
            if not begun:
                failed = ProblemError(500, "the server failed: its log says where", code="internal")
                await failed.response(request_id)(scope, receive, answer)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in SAFE:
            await self.app(scope, receive, send)
            return
        body = await self._body(scope, receive)
        self._buffered += len(body)
        try:
            if body:
                _check(body)
            await self.app(scope, _replayed(body, receive), send)
        finally:
            self._buffered -= len(body)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Raises ProblemError 413, 408, and 503 where too much is on its way at once."""
        most = self.limits.most_bytes
        too_large = ProblemError(413, f"the body is larger than {most} bytes", headers=_CLOSE)
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > most:
            raise too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ProblemError(CLIENT_GONE, "the client is gone")
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    self._buffered += len(chunk)
                    if size > most:
                        raise too_large
                    if self._buffered > self.limits.most_bytes_at_once:
                        busy = {"Retry-After": "1", **_CLOSE}
                        raise ProblemError(503, "too many bytes of bodies in progress", headers=busy)
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise ProblemError(408, "the body did not arrive in time", headers=_CLOSE) from None
        finally:
            self._buffered -= size
        return b"".join(chunks)


def _check(body: bytes) -> None:
    """Raises ProblemError for what is made to exhaust a reader, and for what two readers would understand differently.
    What is no JSON is left to the route."""
    try:
        parse(body)
    except NotJsonError:
        return
    except TooManyValuesError as error:
        raise ProblemError(413, str(error), code="too_many_values") from None
    except JsonError as error:
        raise ProblemError(422, str(error)) from None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever the connection says (that the client hangs up)."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
