"""Routes of served models: which models there are to serve, starting, stopping and swapping, health and logs.

Leaves out: the keys of their users (`key_routes`), scoring (`playground_routes`).
"""

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from pydantic import AliasPath, BaseModel, Field

from assay.errors import BusyError, NotFoundError
from assay.runs.catalogue import list_models
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator, Viewer
from assay_web.rewards.interval import FromRecord
from assay_web.rewards.served_models import address_of
from assay_web.served.endpoint import EndpointSettings, endpoint_of, endpoints_of, start_endpoint, stop_endpoint
from assay_web.served.live import Health, LiveEndpoint, SwapState, begin_swap, live_endpoint, live_endpoints
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["rewards"], route_class=AuditedRoute)

EndpointId = Annotated[str, InPath(pattern=r"^served-[0-9]{8}-[0-9]{6}-[0-9a-f]{6}$")]
NAME = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$"
DEVICE = r"^(auto|cpu|mps|cuda(:[0-9]{1,2})?)$"
DTYPE = r"^(float32|bfloat16|float16|auto)$"


class StoredModel(BaseModel):
    """A reward model of the store, by its newest name. `run`: that made it."""

    name: str
    run: str | None
    created: str


class SwapReply(FromRecord):
    """The last swap of an endpoint's model."""

    model: str
    by: str
    at: float
    state: SwapState
    why: str | None


class EndpointReply(FromRecord):
    """A reward server that was started from the page. `name`: that requests use; `model`: that it serves now, also
    after a swap. `state`: running ones are `ready` or `unreachable`, which `why` explains. `waiting`: items that are
    scored or wait. `command`: as typed in the workspace's folder. Times are seconds since the epoch."""

    id: str = Field(validation_alias=AliasPath("endpoint", "id"))
    name: str = Field(validation_alias=AliasPath("endpoint", "settings", "name"))
    network: bool = Field(validation_alias=AliasPath("endpoint", "settings", "network"))
    port: int = Field(validation_alias=AliasPath("endpoint", "settings", "port"))
    by: str = Field(validation_alias=AliasPath("endpoint", "by"))
    started: float = Field(validation_alias=AliasPath("endpoint", "started"))
    ended: float | None
    state: Health
    why: str | None
    url: str | None
    model: str
    version: str | None
    kind: str | None
    waiting: int | None
    swap: SwapReply | None
    command: str


class EndpointsReply(BaseModel):
    """`endpoints`: the newest first. `models`: that can be served; null while another process holds the store.
    `external`: addresses of servers that the web server was started with."""

    endpoints: list[EndpointReply]
    models: list[StoredModel] | None
    external: list[str]


class EndpointLog(BaseModel):
    """The end of what the server printed."""

    text: str


class NewEndpoint(RequestBody):
    """Which model of the store to serve, and where. `name`: that requests use; null for the model's. `port` 0: any
    free one. `network`: whether other machines may reach it."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    name: Annotated[str, Field(pattern=NAME)] | None = None
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    network: bool = False
    device: Annotated[str, Field(pattern=DEVICE)] = "auto"
    dtype: Annotated[str, Field(pattern=DTYPE)] = "float32"


class SwapModel(RequestBody):
    """The model of the store that takes the place of the present one."""

    model: Annotated[str, Field(min_length=1, max_length=200)]


@router.get("/api/rewards/endpoints")
def list_endpoints(person: Viewer, service: ServiceNow) -> EndpointsReply:
    """Served models that were started from the page, how each is, and what could be served."""
    try:
        models = _models(service)
    except BusyError:
        models = None
    return EndpointsReply(
        endpoints=[_reply(each) for each in live_endpoints(endpoints_of(service.workspace))],
        models=models,
        external=[address_of(server) for server in service.settings.reward_servers],
    )


@router.post("/api/rewards/endpoints", status_code=201)
def start_serving(body: NewEndpoint, person: Curator, service: ServiceNow, request: Request) -> EndpointReply:
    """Start a reward server for one model. It goes on when the web server ends."""
    _require_model(service, body.model)
    settings = EndpointSettings(body.model, body.name or body.model, body.port, body.network, body.device, body.dtype)
    endpoint = start_endpoint(service.workspace, settings, person.name)
    note_change(request, endpoint.id, model=body.model, port=body.port, network=body.network)
    return _reply(live_endpoint(endpoint))


@router.get("/api/rewards/endpoints/{endpoint_id}/log")
def get_endpoint_log(endpoint_id: EndpointId, person: Curator, service: ServiceNow) -> EndpointLog:
    """The end of the server's log."""
    return EndpointLog(text=endpoint_of(service.workspace, endpoint_id).log())


@router.post("/api/rewards/endpoints/{endpoint_id}/swap")
def swap_served_model(
    endpoint_id: EndpointId, body: SwapModel, person: Curator, service: ServiceNow, request: Request
) -> EndpointReply:
    """Load another model beside the present one; once loaded it takes its place, and no request is refused."""
    endpoint = endpoint_of(service.workspace, endpoint_id)
    _require_model(service, body.model)
    begin_swap(endpoint, body.model, person.name)
    note_change(request, endpoint_id, model=body.model)
    return _reply(live_endpoint(endpoint))


@router.post("/api/rewards/endpoints/{endpoint_id}/stop")
def stop_serving(endpoint_id: EndpointId, person: Curator, service: ServiceNow) -> EndpointReply:
    """Queued requests are answered first. Asked once more, the server ends at once."""
    endpoint = endpoint_of(service.workspace, endpoint_id)
    stop_endpoint(endpoint, person.name)
    return _reply(live_endpoint(endpoint))


def _models(service: WebService) -> list[StoredModel]:
    """By name, each once: the newest of that name, which is what `assay serve NAME` loads."""
    newest: dict[str, StoredModel] = {}
    for model in list_models(service.workspace, kind="reward_model"):
        if model.removed is None:
            newest.setdefault(model.name, StoredModel(name=model.name, run=model.run, created=model.created))
    return list(newest.values())


def _require_model(service: WebService, name: str) -> None:
    if all(model.name != name for model in _models(service)):
        raise NotFoundError(f"no reward model {name!r} in this workspace")


def _reply(live: LiveEndpoint) -> EndpointReply:
    return EndpointReply.of(**vars(live), command=live.endpoint.settings.command())
