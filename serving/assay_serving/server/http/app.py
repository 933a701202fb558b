"""The application: routes, gate and lifespan put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI

from assay import __version__
from assay.http.docs_pages import mount_pages
from assay.http.problems import install_handlers
from assay_serving.scorer import Scorer
from assay_serving.server.auth.middleware import Gate
from assay_serving.server.core.scoring_backend import ScoringHost
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.dialects import dialect_routes
from assay_serving.server.http.admin_routes import admin_routes
from assay_serving.server.http.json_route import mount
from assay_serving.server.http.openapi import describe
from assay_serving.server.http.routes import native_routes
from assay_serving.server.http.state import Service
from assay_serving.server.models.in_process import LocalHost


def create_app(scorers: Mapping[str, Scorer], *, settings: ServerSettings | None = None) -> FastAPI:
    """A server of the given models by name, which run in this process."""
    settings = settings or ServerSettings()
    return app_of(LocalHost(scorers, settings), settings=settings)


def app_of(host: ScoringHost, *, settings: ServerSettings) -> FastAPI:
    """A server of what the host holds. `app.state.service` is its `Service`."""
    service = Service(host, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
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
    mount(app, dialect_routes(service))
    mount_pages(app)
    describe(app)
    install_handlers(app)
    app.add_middleware(Gate, service=service)
    return app
