"""Routes of access: signing in and out, and who is signed in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from assay_serving.server.problems import ProblemError
from assay_web.access.audit import AuditedRoute
from assay_web.access.guard import COOKIE, PersonNow, Viewer
from assay_web.access.roles import Role
from assay_web.access.sessions import begin_session, end_session, person_of
from assay_web.server.service import ServiceNow

router = APIRouter(tags=["access"], route_class=AuditedRoute)


class SessionReply(BaseModel):
    """`open_access`: the server was started without accounts. The others: null while nobody is signed in."""

    open_access: bool
    name: str | None = None
    role: Role | None = None
    csrf: str | None = None


class SignIn(BaseModel):
    """`password`: not asked for where the server was started without accounts."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    password: str | None = None


@router.get("/api/session")
def get_session(person: PersonNow, service: ServiceNow) -> SessionReply:
    """Who is signed in."""
    reply = SessionReply(open_access=service.settings.open_access)
    if person is not None:
        reply.name, reply.role, reply.csrf = person.name, person.role, person.csrf
    return reply


@router.post("/api/session")
def sign_in(body: SignIn, request: Request, response: Response, service: ServiceNow) -> SessionReply:
    """Begin a session; the reply sets its cookie."""
    if not service.settings.open_access:
        raise ProblemError(401, "wrong name or password")
    token = begin_session(service.access, body.name.strip(), "admin")
    person = person_of(service.access, token, service.settings)
    assert person is not None
    request.state.person = person
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(service.settings.session_s),
        httponly=True,
        samesite="strict",
        secure=service.settings.secure_cookies,
    )
    return SessionReply(open_access=True, name=person.name, role=person.role, csrf=person.csrf)


@router.delete("/api/session", status_code=204)
def sign_out(person: Viewer, request: Request, response: Response, service: ServiceNow) -> None:
    """End the session."""
    end_session(service.access, request.cookies[COOKIE])
    response.delete_cookie(COOKIE)
