"""Dependencies of routes: the person of a request and the required permission.

    @router.post("/api/queues")
    def make_queue(person: Curator, service: ServiceNow, body: NewQueue) -> QueueReply: ...

Changes must carry the session's token in X-CSRF-Token: a page of another site can send the cookie but not read it.
Programs send an API token (`Authorization: Bearer`) in place of both, which no browser sends by itself.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from assay.http.problems import ProblemError
from assay_web.access.permissions import Permission, may, role_by_token, roles_with
from assay_web.accounts.sessions import Person, person_of
from assay_web.accounts.tokens import holder_of
from assay_web.server.gate import SAFE_METHODS
from assay_web.service import ServiceNow, WebService

COOKIE = "assay_session"
CSRF_HEADER = "X-CSRF-Token"


def cookie_of(request: Request) -> str:
    """The cookie's name, with the port: browsers send cookies to every port of a host, so servers of two workspaces on
    one machine would otherwise end each other's sessions."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def person_now(request: Request, service: ServiceNow) -> Person | None:
    """The person of the request's API token, else of its session; None without one. 401 for a token that is not good:
    it is not looked whether a session is."""
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":  # other schemes are a proxy's
        person: Person | None = _by_token(bearer.strip(), service)
    else:
        token = request.cookies.get(cookie_of(request))
        person = person_of(service.access, token, service.settings) if token else None
    request.state.person = person
    return person


def _by_token(token: str, service: WebService) -> Person:
    holder = holder_of(service.access, token)
    role = role_by_token(holder.role, holder.token_role) if holder is not None else None
    if holder is None or role is None or service.settings.open_access:
        detail = "this API token is not known here, has expired or was revoked"
        raise ProblemError(401, detail, headers={"WWW-Authenticate": "Bearer"})
    return Person(holder.name, role, "", holder.id)


def needs(permission: Permission, *, session: bool = False) -> Callable[[Request, Person | None], Awaitable[Person]]:
    """A dependency that returns the person, whose role has this permission. 401 without a session or API token, 403
    without the permission or the CSRF token. `session`: by which they must be here themselves."""

    async def needed(request: Request, person: Annotated[Person | None, Depends(person_now)]) -> Person:
        if person is None:
            raise ProblemError(401, "sign in first")
        if session and person.token is not None:
            raise ProblemError(403, "no API token may do this: sign in")
        if request.method not in SAFE_METHODS and person.token is None:
            sent = request.headers.get(CSRF_HEADER, "")
            if not secrets.compare_digest(sent.encode(), person.csrf.encode()):
                raise ProblemError(403, f"{CSRF_HEADER} is missing or of another session: load the page again")
        if not may(person, permission):
            raise ProblemError(403, refusal(person, permission))
        return person

    needed.permission = permission  # type: ignore[attr-defined]  # a test reads it of every route
    return needed


def refusal(person: Person, permission: Permission) -> str:
    if permission == "records" and person.role == "annotator":
        return f"{person.name} is an annotator here: annotators see their queues alone, so that votes stay blind"
    return f"this takes the role {' or '.join(roles_with(permission))}; {person.name} has {person.role}"


def anybody() -> None:
    """A dependency that marks a route as open to visitors who are not signed in."""


PersonNow = Annotated[Person | None, Depends(person_now)]
Anybody = Annotated[None, Depends(anybody)]
Visitor = Annotated[Person, Depends(needs("queues"))]
Oneself = Annotated[Person, Depends(needs("queues", session=True))]
Viewer = Annotated[Person, Depends(needs("records"))]
Annotator = Annotated[Person, Depends(needs("vote"))]
Curator = Annotated[Person, Depends(needs("curate"))]
Admin = Annotated[Person, Depends(needs("administer"))]
