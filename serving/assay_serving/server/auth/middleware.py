"""Middleware around all routes: request id, key, scope and body limits before; metrics and a log line after.

Covers: request ids, API keys on every path (documentation, metrics and unknown paths too), which scope a path needs,
cross-origin requests, bodies (`assay.http.request_body`) and their number of items, requests in progress, unexpected
errors as problem details. Logs hold no client text: not the body, not the raw path, not the key. Leaves out: routes,
keys and rate limits (`api_keys`), slow headers (`assay.http.connections`).
"""

import ipaddress
import logging
import re
import secrets
import time
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from fastapi import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.errors import AssayError
from assay.http.docs_pages import PATHS
from assay.http.problems import ProblemError, too_many_items
from assay.http.request_body import BodyLimits, BodyReader, checked_json, replayed, too_busy
from assay.system import tracing
from assay_serving.server.auth.api_keys import OPEN, PROBE, Access, KeyRing, key_in
from assay_serving.server.auth.key_store import ADMIN, READ, SCORE
from assay_serving.server.core.logs import FIELDS
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.http_metrics import HttpMetrics

logger = logging.getLogger("assay.serving")

ADMIN_PATH = "/v1/admin"
HEALTH = frozenset(("/healthz", "/readyz", "/health", "/ping"))  #: paths of health probes
_READ = HEALTH | PATHS | {"/metrics", "/v1/models", "/version", "/model_info", "/get_model_info", "/reverify_mode"}
ITEM_LISTS = ("items", "groups", "pairs")  #: fields of bodies whose members are one item each, at least
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADERS = frozenset(
    (
        b"authorization",
        b"x-api-key",
        b"api-key",
        b"x-request-id",
        b"host",
        b"origin",
        b"content-length",
        b"content-encoding",
        b"traceparent",
    )
)
_REPLY_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]

Headers = dict[bytes, bytes]


class LimitedService(Protocol):
    """What the middleware needs of an application's service."""

    settings: ServerSettings
    metrics: HttpMetrics


def scope_needed(method: str, path: str) -> str:
    """The scope that a key needs for this path; unknown paths need the one to score."""
    if path == ADMIN_PATH or path.startswith(ADMIN_PATH + "/"):
        return ADMIN
    if method in ("GET", "HEAD") and (path in _READ or path.startswith("/v1/models/")):
        return READ
    return SCORE


class RequestMiddleware:
    """ASGI middleware around the whole application. `refuse`: the reply to an error of the middleware."""

    def __init__(
        self,
        app: ASGIApp,
        service: LimitedService,
        refuse: Callable[[ProblemError, str], Response] = lambda problem, request_id: problem.response(request_id),
    ) -> None:
        self.app = app
        self.service = service
        self._refuse = refuse
        self._settings = service.settings
        self._keys = _keys_of(self._settings)
        self._in_progress = 0
        self._bodies = BodyReader(_limits_of(self._settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no route uses websockets
            await send({"type": "websocket.close", "code": 1008})
            return
        started = time.perf_counter()
        headers: Headers = {name: value for name, value in scope["headers"] if name in _HEADERS}
        client_id = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = client_id if _SAFE_ID.fullmatch(client_id) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        reply_headers = [(b"x-request-id", request_id.encode()), *_REPLY_HEADERS]
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *reply_headers]
            await send(message)

        try:
            try:
                if tracing.enabled:
                    parent = headers.get(b"traceparent", b"").decode("latin-1")
                    with tracing.span("http request", parent, request_id=request_id) as span:
                        await self._pass(scope, receive, answer, headers)
                        span.set(http_route=_template(scope), http_response_status=status)
                else:
                    await self._pass(scope, receive, answer, headers)
            except ProblemError as problem:
                if status == 0:
                    await self._refuse(problem, request_id)(scope, receive, answer)
        except Exception as error:
            # The message may quote the client: only the type and the traceback are logged.
            trace = "".join(traceback.format_tb(error.__traceback__))
            logger.error("%s %s\n%s", request_id, type(error).__name__, trace)
            if status == 0:
                failed = ProblemError(500, "the server failed", code="internal")
                await self._refuse(failed, request_id)(scope, receive, answer)
        finally:
            self._record(scope, status, time.perf_counter() - started, request_id)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        if self.service.settings is not self._settings:
            self._follow(self.service.settings)
        self._check_page(headers)
        needed = scope_needed(scope["method"], scope["path"])
        scope["state"]["client"] = self._admit(scope, headers, needed).client
        if needed == READ:  # needs no model: a busy server still answers
            await self.app(scope, receive, send)
            return
        if self._in_progress >= self.service.settings.max_requests:
            raise too_busy("requests")
        self._in_progress += 1
        try:
            async with self._bodies.read(headers, receive) as body:
                if body:
                    _check_json(body, self.service.settings.max_items)
                await self.app(scope, replayed(body, receive), send)
        finally:
            self._in_progress -= 1

    def _follow(self, settings: ServerSettings) -> None:
        """Use settings that were reloaded. Keys that cannot be read leave the previous ones."""
        self._settings = settings
        self._bodies.limits = _limits_of(settings)
        try:
            self._keys = _keys_of(settings)
        except AssayError as error:
            logger.error("keys not usable, the previous ones stay: %s", error)

    def _admit(self, scope: Scope, headers: Headers, needed: str) -> Access:
        """The client. Raises ProblemError 401 for no or an unknown key, 403 for one without the scope."""
        if not self._keys.needed:
            if needed == ADMIN and not self.service.settings.open_admin:
                raise ProblemError(403, "administration needs a key, and this server has none")
            return OPEN
        x_api_key = headers.get(b"x-api-key") or headers.get(b"api-key", b"")
        key = key_in(headers.get(b"authorization", b"").decode("latin-1"), x_api_key.decode("latin-1"))
        access = self._keys.find(key) if key else None
        if access is None and self.service.settings.open_health and needed == READ and scope["path"] in HEALTH:
            return PROBE
        if access is None:
            detail = "the API key is not known here" if key else "an API key is needed: Authorization: Bearer KEY"
            raise ProblemError(401, detail, headers={"WWW-Authenticate": "Bearer"})
        scope["state"]["client"] = access.client  # for the log, also of refused requests
        if needed != READ and needed not in access.scopes:
            raise ProblemError(
                403,
                f"this key may not do this: it lacks the scope {needed}",
                headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{needed}"'},
            )
        return access

    def _check_page(self, headers: Headers) -> None:
        """Refuse cross-origin requests, which another web page sends from a browser that can reach this server."""
        host = headers.get(b"host", b"")
        allowed = self.service.settings.allowed_hosts
        if allowed is not None and not _is_own(host.decode("latin-1"), allowed):
            raise ProblemError(421, "the Host header names another server; see allowed_hosts", code="wrong_host")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2] != host:
            raise ProblemError(403, "requests of pages from elsewhere are refused")

    def _record(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = _template(scope)
        self.service.metrics.count(route, status, seconds)
        expected = status < 500 or scope["path"] in HEALTH  # an early probe is no error
        level = logging.INFO if expected else logging.WARNING
        if not logger.isEnabledFor(level):
            return
        state = scope["state"]
        client = state.get("client")
        logger.log(
            level,
            "%s %s %s %d",
            request_id,
            scope["method"],
            route,
            status,
            extra={
                FIELDS: {
                    "request_id": request_id,
                    "client": client.name if client is not None else None,
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "ms": round(seconds * 1000, 1),
                    "model": state.get("model"),
                    "items": state.get("items"),
                    "cached": state.get("cached"),
                }
            },
        )


def _keys_of(settings: ServerSettings) -> KeyRing:
    return KeyRing(settings.api_keys, Path(settings.keys_file) if settings.keys_file else None)


def _limits_of(settings: ServerSettings) -> BodyLimits:
    return BodyLimits(settings.max_body_bytes, settings.max_buffered_bytes, settings.body_timeout_s)


def _template(scope: Scope) -> str:
    """The path template of the matching route, never the raw path of the request."""
    if (path := getattr(scope.get("route"), "path", None)) is not None:
        return str(path)
    routes = getattr(scope.get("app"), "routes", ())
    matches = ((route.matches(scope)[0], route) for route in routes)
    candidates = [(match, r.path) for match, r in matches if match is not Match.NONE and hasattr(r, "path")]
    full = (path for match, path in candidates if match is Match.FULL)
    return next(full, candidates[0][1] if candidates else "unmatched")


def _check_json(body: bytes, max_items: int) -> None:
    """Raise ProblemError for JSON that parsers read differently or that exhausts them, and for more items than a route
    scores: validating them takes a thousand times as long as counting. Invalid JSON is left to the route."""
    value = checked_json(body)
    members = [value[name] for name in ITEM_LISTS if name in value] if isinstance(value, dict) else []
    if (most := max((len(member) for member in members if isinstance(member, list)), default=0)) > max_items:
        raise too_many_items(most, max_items)


@lru_cache(maxsize=1024)
def _is_own(host: str, allowed: tuple[str, ...]) -> bool:
    """An address, localhost, or an allowed name: a page cannot fake an address as its origin."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    name = name.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost") or name in allowed:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
