"""Middleware around every request: bounded bodies, headers of every reply, unexpected errors as problems, foreign
origins refused, limits on concurrent requests by kind, so that threads are left for votes.

Bodies of unauthenticated clients are read completely, within limits on bytes, time and shape, before any route parses
them. Routes run in a pool of 40 threads. A page that reads the store may hold one for seconds; hundreds of such
requests, or of sign-ins, would block votes. Requests over a limit wait here without a thread. Leaves out: slow headers
(`assay.http.connections`), waiting for the store (`WebService.store`).
"""

import asyncio
import logging
import secrets
import traceback

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.http.problems import ProblemError
from assay.http.request_body import BodyLimits, BodyReader, checked_json, replayed

log = logging.getLogger(__name__)

#: Methods that change nothing.
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))

#: Below this path a PUT is a piece of a file: its route writes it to the disk as it arrives, within limits of its own
#: (`assay_web.uploads.routes`), once it knows the person.
_STREAMED = "/api/uploads/"

#: HSTS (RFC 6797), over https only. It applies to all ports of a name, so it is not sent for local names, under which
#: other servers may run.
_HTTPS_ONLY = [(b"strict-transport-security", b"max-age=31536000")]
_LOCAL_NAMES = frozenset((b"localhost", b"127.0.0.1", b"[::1]"))
_API = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class RequestGate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self.app = app
        self._bodies = BodyReader(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no route speaks websocket
            await send({"type": "websocket.close", "code": 1008})
            return
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        extra_headers = [*_API] if scope["path"].startswith("/api/") else []
        if scope["scheme"] == "https" and _host(scope) not in _LOCAL_NAMES:
            extra_headers += _HTTPS_ONLY
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *extra_headers]
            await send(message)

        try:
            try:
                await self._pass(scope, receive, answer)
            except ProblemError as problem:
                await problem.response(request_id)(scope, receive, answer)
        except Exception as error:
            # The message may quote users' text: only the type and the stack are logged.
            trace = "".join(traceback.format_tb(error.__traceback__))
            log.error("request %s: %s\n%s", request_id, type(error).__name__, trace)
            if not begun:
                failed = ProblemError(500, "the server failed: its log says where", code="internal")
                await failed.response(request_id)(scope, receive, answer)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in SAFE_METHODS or _is_streamed(scope):
            await self.app(scope, receive, send)
            return
        async with self._bodies.read(dict(scope["headers"]), receive) as body:
            if body:
                checked_json(body)
            await self.app(scope, replayed(body, receive), send)


def _is_streamed(scope: Scope) -> bool:
    path: str = scope["path"]
    return scope["method"] == "PUT" and path.startswith(_STREAMED)


def _host(scope: Scope) -> bytes:
    """Name in the Host header, without the port."""
    host: bytes = dict(scope["headers"]).get(b"host", b"").lower()
    name, _, port = host.rpartition(b":")
    return name if name and port.isdigit() else host


class SameOrigin:
    """ASGI middleware. `allowed_hosts`: names without a port; "*" for any."""

    def __init__(self, app: ASGIApp, allowed_hosts: tuple[str, ...]) -> None:
        self.app = app
        self.allowed = frozenset(name.lower() for name in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (problem := self._problem(scope)) is not None:
            await problem.response(None)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _problem(self, scope: Scope) -> ProblemError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if "*" not in self.allowed and _without_port(host) not in self.allowed:
            return ProblemError(403, "this server is not called by that name: see --allowed-host")
        if scope["method"] not in SAFE_METHODS:
            origin = headers.get("origin")
            if origin is not None and origin.lower().partition("://")[2] != host:
                return ProblemError(403, "changes are taken from this server's own page only")
        return None


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


PAGES = 20  #: requests that may read the store, or query a reward server
SIGN_INS = 6  #: requests with a password or a link
PIECES = 32  #: of files on their way: they take a thread only while a part is written
_SIGNING_IN = ("/api/session", "/api/invitation")


class ThreadLimits:
    """ASGI middleware. Annotation requests and `GET /api/session` do not read the store and are not limited; neither
    are streams of events, which go on for long and hold no thread meanwhile."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._pages, self._signing_in = asyncio.Semaphore(PAGES), asyncio.Semaphore(SIGN_INS)
        self._pieces = asyncio.Semaphore(PIECES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = self._lane(scope) if scope["type"] == "http" else None
        if lane is None:
            await self.app(scope, receive, send)
            return
        await lane.acquire()
        held = True

        async def answer(message: Message) -> None:
            nonlocal held
            if held:  # the reply is sent without a thread, however slowly it is read
                held = False
                lane.release()
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            if held:
                lane.release()

    def _lane(self, scope: Scope) -> asyncio.Semaphore | None:
        path: str = scope["path"]
        if not path.startswith("/api/") or path.startswith("/api/annotate/") or path.endswith("/events"):
            return None
        if _is_streamed(scope):
            return self._pieces
        if path.startswith(_SIGNING_IN):
            return None if path == "/api/session" and scope["method"] in SAFE_METHODS else self._signing_in
        return self._pages
