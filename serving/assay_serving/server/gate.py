"""What every request passes before its route: identity, key, body limits; and after it: metrics and one log line.

Covers: request ids, API keys on every path (documentation, metrics and unknown paths too), bodies bounded in bytes
and time whatever Content-Length says, unforeseen errors as problems. Logs hold no text of the caller's: not the
body, not the path as sent, not the key. Leaves out: what routes do.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
import traceback

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay_serving.server.problems import ProblemError
from assay_serving.server.service import Service

logger = logging.getLogger("assay.serving")

REQUEST_ID = "x-request-id"
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        self._keys = tuple(_digest(key) for key in service.settings.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no route speaks websocket; none may answer without a key
            await send({"type": "websocket.close", "code": 1008})
            return
        started = time.perf_counter()
        headers = Headers(scope=scope)
        given = headers.get(REQUEST_ID, "")
        request_id = given if _SAFE_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            try:
                self._check_key(headers)
                body = await self._read_body(headers, receive)
                await self.app(scope, _replay(body, receive), answer)
            except ProblemError as problem:
                if status == 0:
                    await problem.response(request_id)(scope, receive, answer)
        except Exception as error:
            # The message may quote the caller: only the type and the places are logged.
            trace = "".join(traceback.format_tb(error.__traceback__))
            logger.error("%s %s\n%s", request_id, type(error).__name__, trace)
            if status == 0:
                await ProblemError(500, "the server failed", code="internal").response(request_id)(
                    scope, receive, answer
                )
        finally:
            self._record(scope, status, time.perf_counter() - started, request_id)

    def _check_key(self, headers: Headers) -> None:
        if not self._keys:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        found = _digest(key)
        # Every key is compared, each in constant time: neither length nor position of a near miss shows.
        if not sum(hmac.compare_digest(found, known) for known in self._keys):
            raise ProblemError(
                401,
                "an API key is needed: Authorization: Bearer KEY" if not key else "the API key is not known here",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes:
        limit = self.service.settings.max_body_bytes
        too_large = ProblemError(413, f"the body is larger than {limit} bytes", headers={"Connection": "close"})
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            raise too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.service.settings.body_timeout_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ProblemError(499, "the client is gone")
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > limit:
                        raise too_large
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise ProblemError(408, "the body did not arrive in time", headers={"Connection": "close"}) from None
        return b"".join(chunks)

    def _record(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", None) or "unmatched"
        metrics = self.service.metrics
        metrics.requests.labels(route, str(status)).inc()
        metrics.seconds.labels(route).observe(seconds)
        level = logging.INFO if status < 500 else logging.WARNING
        logger.log(level, "%s %s %s %d %.1f ms", request_id, scope["method"], route, status, seconds * 1000)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever the connection says (that the client hangs up)."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
