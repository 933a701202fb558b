"""Routes of API tokens: one's own, and for administrators everybody's. Made and revoked by people, never by a token."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from pydantic import BaseModel, Field

from assay.http.problems import ProblemError
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Oneself, refusal
from assay_web.access.permissions import is_within, may
from assay_web.accounts.accounts import Role
from assay_web.accounts.tokens import LONGEST_DAYS, LONGEST_LABEL, ApiToken, list_tokens, make_token, revoke_token
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow

router = APIRouter(tags=["access"], route_class=AuditedRoute)

TokenId = Annotated[str, InPath(pattern=r"^[0-9a-f]{8}$")]


class TokensReply(BaseModel):
    """Newest first, expired ones too, without their secrets."""

    tokens: list[ApiToken]


class NewToken(RequestBody):
    """`label`: what it is for. `role`: the most that it may: one's own role or less."""

    label: Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL)]
    role: Role
    days: Annotated[float, Field(gt=0, le=LONGEST_DAYS)] = 90.0


class MadeToken(BaseModel):
    """`secret`: the whole token, shown once."""

    secret: str
    token: ApiToken


@router.get("/api/tokens")
def get_tokens(
    person: Oneself,
    service: ServiceNow,
    everybody: Annotated[bool, Query(description="Everybody's, for administrators.")] = False,
) -> TokensReply:
    """One's own tokens."""
    if everybody and not may(person, "administer"):
        raise ProblemError(403, refusal(person, "administer"))
    return TokensReply(tokens=list_tokens(service.access, None if everybody else person.name))


@router.post("/api/tokens", status_code=201)
def make_own_token(body: NewToken, person: Oneself, service: ServiceNow, request: Request) -> MadeToken:
    """Make a token that acts in one's own name. Only its hash is kept: the reply is the one place that shows it."""
    if service.settings.open_access:
        raise ProblemError(409, "this server runs without accounts, and so without tokens: programs give a name alone")
    if not is_within(body.role, person.role):
        raise ProblemError(403, f"a token of {person.name} may at most what the role {person.role} may")
    secret, token = make_token(service.access, person.name, body.label, body.role, days=body.days)
    note_change(request, token.id, role=body.role, days=body.days)
    return MadeToken(secret=secret, token=token)


@router.delete("/api/tokens/{token_id}", status_code=204)
def revoke_token_by_id(token_id: TokenId, person: Oneself, service: ServiceNow, request: Request) -> None:
    """From the next request on it is refused. Administrators revoke anybody's."""
    of = None if may(person, "administer") else person.name
    token = revoke_token(service.access, token_id, of=of)
    note_change(request, token.id, of=token.name)
