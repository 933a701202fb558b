"""The application of an environment: its health, the routes of NeMo-Gym and OpenEnv.

Leaves out: keys. A page of a browser that comes from elsewhere is not answered, over HTTP or a WebSocket; nor, where
the server is for this machine alone, one that reaches it by another name.
"""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from assay import __version__
from assay.errors import BackendError
from assay.http.problems import ProblemError, install_handlers, request_id_of
from assay_policy_training.outside_trainers.nemo_gym import nemo_gym_routes
from assay_policy_training.outside_trainers.openenv import openenv_routes
from assay_policy_training.outside_trainers.sessions import Sessions


class NoForeignPages:
    """ASGI middleware: a browser says whose page asks, and lets any page open a WebSocket. `names`: by which the server
    may be called; None: by any."""

    def __init__(self, app: ASGIApp, names: frozenset[str] | None) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._is_answered(Headers(scope=scope)):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await ProblemError(403, "requests of pages from elsewhere are refused").response(None)(scope, receive, send)

    def _is_answered(self, headers: Headers) -> bool:
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        try:
            named = self.names is None or urlsplit(f"//{host}").hostname in self.names
        except ValueError:
            return False
        return named and (origin is None or origin.lower().partition("://")[2] == host)


def environment_app(sessions: Sessions, *, local: bool = True) -> FastAPI:
    """`local`: only requests to this machine's own names are answered."""

    @asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        yield
        await sessions.close_all()

    app = FastAPI(
        lifespan=closing, title="Assay environment server", version=__version__, docs_url=None, redoc_url=None
    )
    names = frozenset({"localhost", "127.0.0.1", "::1", socket.gethostname().lower()}) if local else None
    app.add_middleware(NoForeignPages, names=names)
    install_handlers(app)

    @app.exception_handler(BackendError)
    async def failed(request: Request, error: Exception) -> Response:
        """Why an episode has no reward is for the client to know."""
        return ProblemError(500, str(error), code="environment_failed").response(request_id_of(request))

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "healthy"}

    app.include_router(openenv_routes(sessions))
    app.include_router(nemo_gym_routes(sessions))
    return app
