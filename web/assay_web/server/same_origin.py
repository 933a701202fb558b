"""Middleware that refuses requests with a foreign Host header, and changes with a foreign Origin.

The first prevents DNS rebinding against a server on loopback, the second cross-site requests that sign users in or out.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from assay.http.problems import ProblemError
from assay_web.server.gate import SAFE_METHODS


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
