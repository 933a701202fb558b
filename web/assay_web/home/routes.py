"""The route of the page that people begin at: how far the workspace is. Queues, jobs and runs have routes of theirs."""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from assay.errors import BusyError
from assay_pipelines.annotation.queues import list_queues
from assay_web.access.audited_route import AuditedRoute
from assay_web.access.guard import Viewer
from assay_web.access.queue_access import visible_queues
from assay_web.annotate.live import LiveNow
from assay_web.home.figures import WorkspaceFigures, workspace_figures
from assay_web.rewards.served_models import address_of
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["home"], route_class=AuditedRoute)


class FiguresReply(WorkspaceFigures):
    """`queues`: that one sees; `votes`: in them; `servers`: addresses of the reward servers that the pages may ask."""

    queues: int
    votes: int
    servers: list[str]


class HomeReply(BaseModel):
    """`figures`: null while another process has held the store since the server began. `held`: by which they are the
    last known ones."""

    figures: FiguresReply | None
    held: str | None


@router.get("/api/home")
def get_home(person: Viewer, service: ServiceNow, live: LiveNow, request: Request) -> HomeReply:
    """What is in the workspace, by which the page says what comes next."""
    held: str | None = None
    try:
        request.app.state.home_figures = _figures(service)
    except BusyError as error:
        held = str(error)
    figures: WorkspaceFigures | None = getattr(request.app.state, "home_figures", None)
    if figures is None:
        return HomeReply(figures=None, held=held)
    queues = visible_queues(service, person, list_queues(service.workspace))
    votes = sum(live.state(queue.name).progress.votes for queue in queues)
    servers = [address_of(server) for server in service.reward_servers]
    reply = FiguresReply(**figures.model_dump(), queues=len(queues), votes=votes, servers=servers)
    return HomeReply(figures=reply, held=held)


def _figures(service: WebService) -> WorkspaceFigures:
    with service.store() as db:
        return workspace_figures(db)
