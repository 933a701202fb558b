"""The FastAPI application of a scoring server: routes, middleware and lifespan put together."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from fastapi import FastAPI
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from assay import __version__
from assay.http.docs_pages import mount_pages
from assay.http.problems import install_handlers
from assay_serving.scorer import Scorer
from assay_serving.server.auth.middleware import RequestMiddleware
from assay_serving.server.core.scoring_backend import ScoringBackend
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.dialects import DIALECTS
from assay_serving.server.http.admin_routes import admin_routes
from assay_serving.server.http.json_route import JsonRoute, mount
from assay_serving.server.http.openapi import describe
from assay_serving.server.http.routes import native_routes
from assay_serving.server.http.service import ScoringService
from assay_serving.server.in_process import InProcessBackend


def create_app(scorers: Mapping[str, Scorer], *, settings: ServerSettings | None = None) -> FastAPI:
    """A server of the given models by name, which run in this process."""
    settings = settings or ServerSettings()
    return app_of(InProcessBackend(scorers, settings), settings=settings)


def app_of(backend: ScoringBackend, *, settings: ServerSettings) -> FastAPI:
    """A server of the backend's models. `app.state.service` is its `ScoringService`."""
    service = ScoringService(backend, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = _ScoringApplication(
        title="Assay reward server",
        version=__version__,
        description="Scores of responses by named reward models. Failures are typed entries, never numbers.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load their scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    mount(app, native_routes(service))
    mount(app, admin_routes(service))
    for name in DIALECTS.names() if settings.dialects is None else settings.dialects:
        routes = DIALECTS.accept(DIALECTS.find(name)(service), name)
        for route in routes.routes:
            route.tags.insert(0, "dialects")
        mount(app, routes)
    mount_pages(app)
    describe(app)
    install_handlers(app)
    app.add_middleware(RequestMiddleware, service=service)
    return app


class _ScoringApplication(FastAPI):
    """Requests go to our middleware at once, and from there to the route of their JSON body.

    The layers that FastAPI and Starlette have before and between them (telemetry, exit stacks, the search for the
    route) do nothing here. All other requests pass those behind our middleware.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await self._entry(scope, receive, send)

    @cached_property
    def _entry(self) -> ASGIApp:
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        entry: Any = self.middleware_stack
        outermost: Any = self.user_middleware[0].cls
        if outermost is not RequestMiddleware:  # somebody added a layer before ours
            return self.middleware_stack
        while not isinstance(entry, RequestMiddleware):
            entry = entry.app
        behind = entry.app
        handlers = {kind: handler for kind, handler in self.exception_handlers.items() if kind not in (500, Exception)}
        direct = ExceptionMiddleware(_answer, handlers=handlers)
        routes = {
            (method, route.path): route
            for route in self.router.routes
            if isinstance(route, JsonRoute) and route.reads_body
            for method in route.methods or ()
        }

        async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
            route = routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
            if route is None:
                await behind(scope, receive, send)
            else:
                scope["route"], scope["endpoint"], scope["path_params"] = route, route.endpoint, {}
                await direct(scope, receive, send)

        entry.app = dispatch
        return entry


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await scope["route"].app(scope, receive, send)
