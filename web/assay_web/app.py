"""The FastAPI application of `assay web`: routes of every area, middleware, the page and the lifespan."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware

from assay import __version__
from assay.http.docs_pages import mount_pages
from assay.http.problems import install_handlers
from assay.workspace import Workspace
from assay_web.access.account_routes import router as account_router
from assay_web.access.oidc_routes import router as oidc_router
from assay_web.access.routes import router as access_router
from assay_web.access.token_routes import router as token_router
from assay_web.access.webhook_routes import router as webhook_router
from assay_web.annotate.edit_routes import router as edit_router
from assay_web.annotate.item_routes import router as item_router
from assay_web.annotate.own_routes import router as own_router
from assay_web.annotate.queue_routes import router as queue_router
from assay_web.annotate.session_routes import router as session_router
from assay_web.annotate.time_routes import router as time_router
from assay_web.comparisons.media_routes import router as media_router
from assay_web.comparisons.routes import router as comparisons_router
from assay_web.comparisons.similar_routes import router as similar_router
from assay_web.curate.routes import router as curate_router
from assay_web.home.routes import router as home_router
from assay_web.jobs.routes import router as job_router
from assay_web.jobs.scheduler import JobScheduler
from assay_web.records.routes import router as records_router
from assay_web.rewards.bias_routes import router as bias_router
from assay_web.rewards.disagreement_routes import router as disagreement_router
from assay_web.rewards.endpoint_routes import router as endpoint_router
from assay_web.rewards.key_routes import router as key_router
from assay_web.rewards.leaderboard_routes import router as leaderboard_router
from assay_web.rewards.playground_routes import router as playground_router
from assay_web.runs.alerts.evaluation import AlertWatch
from assay_web.runs.alerts.routes import router as alerts_router
from assay_web.runs.routes import router as runs_router
from assay_web.server.gate import RequestGate, SameOrigin, ThreadLimits
from assay_web.server.page import mount_page
from assay_web.service import WebService
from assay_web.settings import WebSettings
from assay_web.training_sets.routes import router as training_set_router
from assay_web.uploads.preview_routes import router as preview_router
from assay_web.uploads.routes import router as upload_router

#: Every path begins with /api. Matched in this order, so annotation comes first.
ROUTERS = (
    session_router,
    own_router,
    home_router,
    access_router,
    oidc_router,
    account_router,
    token_router,
    webhook_router,
    queue_router,
    edit_router,
    item_router,
    time_router,
    similar_router,
    curate_router,
    job_router,
    records_router,
    playground_router,
    endpoint_router,
    key_router,
    leaderboard_router,
    bias_router,
    disagreement_router,
    alerts_router,
    runs_router,
    comparisons_router,
    media_router,
    training_set_router,
    upload_router,
    preview_router,
)


SMALLEST_COMPRESSED = 1500  #: bytes of a reply; smaller ones fit into one packet


def create_app(workspace: Workspace, settings: WebSettings | None = None) -> FastAPI:
    """The web server of a workspace. `app.state.service` is its `WebService`."""
    settings = settings or WebSettings()
    service, jobs = WebService(workspace, settings), JobScheduler(workspace, lambda: service.reward_servers)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(service.start)
        app.state.alerts = alerts = AlertWatch(service.workspace)
        alerts.start()
        jobs.start()
        try:
            yield
        finally:
            await run_in_threadpool(jobs.stop)
            await run_in_threadpool(alerts.stop)
            await run_in_threadpool(service.stop)

    app = FastAPI(
        title="Assay web",
        version=__version__,
        description="Annotation, curation, data, rewards and runs of one workspace: the API that the page uses.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's default pages load scripts from a CDN
        redoc_url=None,
        generate_unique_id_function=_operation_id,
    )
    app.state.service, app.state.jobs = service, jobs
    for router in ROUTERS:
        app.include_router(router)
    mount_pages(app)
    mount_page(app, settings.page)
    install_handlers(app)
    app.add_middleware(ThreadLimits)
    app.add_middleware(SameOrigin, allowed_hosts=settings.allowed_hosts)
    # Secrets (the session's CSRF token, invitations, API tokens) stand in small replies, which are not compressed, and
    # no reply repeats what its request said beside a secret: there is nothing to guess by length (BREACH).
    app.add_middleware(GZipMiddleware, minimum_size=SMALLEST_COMPRESSED, compresslevel=5)
    app.add_middleware(RequestGate, limits=settings.body_limits)  # the last one is the outermost
    return app


def _operation_id(route: APIRoute) -> str:
    """The route function's name, unique over all areas; generated clients use it."""
    return route.name
