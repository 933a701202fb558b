"""Routes of the API keys that users of the served models send: the workspace's `keys.json`, as `assay keys` has it.

Every server of the workspace accepts a new key within a second, and refuses a revoked one as soon. Keys with the scope
admin, which may load and unload models, are administrators' to make. Leaves out: API tokens of people, for the web
server itself (`assay_web.access.token_routes`).
"""

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from pydantic import BaseModel, Field

from assay.errors import NotFoundError
from assay.http.problems import ProblemError
from assay_serving.server.auth.key_store import ADMIN, FILE, KeyEntry, create_key, read_keys, revoke_key
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator, refusal
from assay_web.access.permissions import may
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow

router = APIRouter(tags=["rewards"], route_class=AuditedRoute)

KeyName = Annotated[str, InPath(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class ServingKey(BaseModel):
    """A key without its secret. `models`: the only ones that it may use; null for all. Times are ISO 8601, UTC."""

    name: str
    id: str
    scopes: list[str]
    requests_per_minute: float | None
    items_per_minute: float | None
    created: str
    expires: str | None
    models: list[str] | None


class ServingKeys(BaseModel):
    """In the order in which they were made."""

    keys: list[ServingKey]


class NewServingKey(RequestBody):
    """`name`: of the user, shown in logs and metrics. `days`: null for a key that does not expire."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    scope: Literal["read", "score", "admin"] = "score"
    days: Annotated[int, Field(ge=1, le=3650)] | None = None
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    items_per_minute: Annotated[float, Field(gt=0)] | None = None
    models: Annotated[list[str], Field(min_length=1, max_length=100)] | None = None


class MadeServingKey(BaseModel):
    """`secret`: the whole key, shown once."""

    secret: str
    key: ServingKey


@router.get("/api/rewards/keys")
def list_serving_keys(person: Curator, service: ServiceNow) -> ServingKeys:
    """The keys, without their secrets."""
    try:
        entries = read_keys(service.workspace.root / FILE).entries
    except NotFoundError:
        entries = ()
    return ServingKeys(keys=[_key(entry) for entry in entries])


@router.post("/api/rewards/keys", status_code=201)
def make_serving_key(body: NewServingKey, person: Curator, service: ServiceNow, request: Request) -> MadeServingKey:
    """Make a key. Only its hash is kept: the reply is the one place that shows it."""
    if body.scope == ADMIN and not may(person, "administer"):
        raise ProblemError(403, refusal(person, "administer"))
    secret, entry = create_key(
        service.workspace.root / FILE,
        body.name,
        [body.scope],
        requests_per_minute=body.requests_per_minute,
        items_per_minute=body.items_per_minute,
        expires=f"{body.days}d" if body.days is not None else None,
        models=body.models,
    )
    note_change(request, entry.name, id=entry.id, scope=body.scope, days=body.days)
    return MadeServingKey(secret=secret, key=_key(entry))


@router.delete("/api/rewards/keys/{name}", status_code=204)
def revoke_serving_key(name: KeyName, person: Curator, service: ServiceNow, request: Request) -> None:
    """Running servers refuse the key within a second."""
    file = service.workspace.root / FILE
    if not may(person, "administer") and any(k.name == name and ADMIN in k.scopes for k in read_keys(file).entries):
        raise ProblemError(403, refusal(person, "administer"))
    entry = revoke_key(file, name)
    note_change(request, entry.name, id=entry.id)


def _key(entry: KeyEntry) -> ServingKey:
    return ServingKey.model_validate(asdict(entry))
