"""Routes of a person's own access: the session, the password, accepting an invitation."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, Field

from assay.http.problems import ProblemError
from assay_web.access.audited_route import AuditedRoute, address_of, note_change
from assay_web.access.guard import Anybody, Oneself, PersonNow, cookie_of
from assay_web.access.permissions import PERMISSIONS, Permission
from assay_web.accounts.access_file import digest
from assay_web.accounts.accounts import Role, account_named, authenticate, check_name, has_accounts, set_password
from assay_web.accounts.audit_log import record
from assay_web.accounts.invitations import accept, open_invitation
from assay_web.accounts.passwords import LONGEST
from assay_web.accounts.sessions import Person, begin_session, end_session, person_of
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["access"], route_class=AuditedRoute)

WRONG = "wrong name or password"
Secret = Annotated[str, Field(max_length=LONGEST)]


class SessionReply(BaseModel):
    """`provider`: what the button to sign in by an OpenID provider calls it; null without one. `open_access`: the
    server was started without accounts. `first_start`: accounts are required and none exists yet.
    The other fields are null, or empty, without a session. `permissions`: what the page may show and offer."""

    open_access: bool
    first_start: bool = False
    name: str | None = None
    role: Role | None = None
    csrf: str | None = None
    permissions: list[Permission] = []
    provider: str | None = None


class SignIn(RequestBody):
    """`password`: not needed on a server without accounts."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    password: Secret | None = None


class PasswordChange(RequestBody):
    """`current`: the present password."""

    current: Secret
    new: Secret


class InvitationReply(BaseModel):
    """`name`: the account whose password the link resets; null: it creates an account. Seconds since the epoch."""

    role: Role
    name: str | None
    expires_at: float


class Acceptance(RequestBody):
    """`name`: of the new account; omitted if the link resets a password."""

    token: Annotated[str, Field(max_length=200)]
    name: Annotated[str | None, Field(max_length=100)] = None
    password: Secret


@router.get("/api/session")
def get_session(person: PersonNow, service: ServiceNow) -> SessionReply:
    """Who is signed in."""
    if person is not None:
        return _reply(person, service)
    open_access = service.settings.open_access
    first_start = not open_access and not has_accounts(service.access)
    return SessionReply(open_access=open_access, first_start=first_start, provider=_provider(service))


@router.post("/api/session")
def sign_in(body: SignIn, request: Request, response: Response, service: ServiceNow, _: Anybody) -> SessionReply:
    """Begin a session; the reply sets its cookie. Failures are limited by account and address (429)."""
    if service.settings.open_access:
        return _enter(check_name(body.name), "admin", request, response, service)
    address = address_of(request)
    service.attempts.take(body.name, address)
    name = authenticate(service.access, service.passwords, body.name, body.password or "")
    if name is None:
        # The account that was tried, not the text that was typed: it may be a password in the wrong field.
        record(service.access, "", "sign_in_refused", account_named(service.access, body.name) or "", address=address)
        raise ProblemError(401, WRONG)
    service.attempts.give_back(body.name, address)
    return _enter(name, None, request, response, service)


@router.delete("/api/session", status_code=204)
def sign_out(person: Oneself, request: Request, response: Response, service: ServiceNow) -> None:
    """End the session."""
    end_session(service.access, request.cookies[cookie_of(request)])
    response.delete_cookie(cookie_of(request))


@router.put("/api/session/password", status_code=204)
def change_own_password(body: PasswordChange, person: Oneself, request: Request, service: ServiceNow) -> None:
    """Set one's own password and end one's other sessions. Wrong passwords count as failed sign-ins."""
    if service.settings.open_access:
        raise ProblemError(409, "this server runs without accounts: there is no password to change")
    address = address_of(request)
    service.attempts.take(person.name, address)
    if authenticate(service.access, service.passwords, person.name, body.current) is None:
        raise ProblemError(403, "that is not the password until now")
    service.attempts.give_back(person.name, address)
    session_digest = digest(request.cookies[cookie_of(request)])
    set_password(service.access, service.passwords, person.name, body.new, but=session_digest)
    note_change(request, person.name)


@router.get("/api/invitation")
def get_invitation(
    service: ServiceNow, _: Anybody, token: Annotated[str, Header(alias="X-Invitation", max_length=200)]
) -> InvitationReply:
    """What the invitation is for. The token is sent in a header, since URLs are logged. 404 once it is used."""
    invitation = open_invitation(service.access, token)
    return InvitationReply(role=invitation.role, name=invitation.name, expires_at=invitation.expires_at)


@router.post("/api/invitation")
def accept_invitation(
    body: Acceptance, request: Request, response: Response, service: ServiceNow, _: Anybody
) -> SessionReply:
    """Create the account, or reset its password, and begin a session. A link works once."""
    if service.settings.open_access:
        raise ProblemError(409, "this server runs without accounts: start it without --open first")
    name = accept(service.access, service.passwords, body.token, body.name or "", body.password)
    return _enter(name, None, request, response, service)


def _enter(name: str, role: Role | None, request: Request, response: Response, service: WebService) -> SessionReply:
    """Begin a session for an authenticated name."""
    token = begin_session(service.access, name, role, service.settings)
    person = person_of(service.access, token, service.settings)
    if person is None:  # disabled meanwhile
        raise ProblemError(401, WRONG)
    request.state.person = person
    note_change(request, name)
    set_session_cookie(response, request, service, token)
    return _reply(person, service)


def set_session_cookie(response: Response, request: Request, service: WebService, token: str) -> None:
    response.set_cookie(
        cookie_of(request),
        token,
        max_age=int(service.settings.session_s),
        httponly=True,
        samesite="strict",
        # A trusted proxy forwards the scheme by which it was reached.
        secure=service.settings.secure_cookies or request.url.scheme == "https",
    )


def _reply(person: Person, service: WebService) -> SessionReply:
    return SessionReply(
        open_access=service.settings.open_access,
        name=person.name,
        role=person.role,
        csrf=person.csrf,
        permissions=list(PERMISSIONS[person.role]),
        provider=_provider(service),
    )


def _provider(service: WebService) -> str | None:
    return service.provider.settings.label if service.provider is not None else None
