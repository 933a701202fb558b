"""Dependencies of routes: the person of a request and the required permission.

    @router.post("/api/queues")
    def make_queue(person: Curator, service: ServiceNow, body: NewQueue) -> QueueReply: ...

Changes must carry the session's token in X-CSRF-Token: a page of another site can send the cookie but not read it.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from assay.http.problems import ProblemError
from assay_web.access.permissions import Permission, may, roles_with
from assay_web.accounts.sessions import Person, person_of
from assay_web.server.gate import SAFE_METHODS
from assay_web.service import ServiceNow

COOKIE = "assay_session"
CSRF_HEADER = "X-CSRF-Token"


def cookie_of(request: Request) -> str:
    """The cookie's name, with the port: browsers send cookies to every port of a host, so servers of two workspaces on
    one machine would otherwise end each other's sessions."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def person_now(request: Request, service: ServiceNow) -> Person | None:
    """The person of the request's session; None without one."""
    token = request.cookies.get(cookie_of(request))
    person = person_of(service.access, token, service.settings) if token else None
    request.state.person = person
    return person


def needs(permission: Permission) -> Callable[[Request, Person | None], Awaitable[Person]]:
    """A dependency that returns the person, whose role has this permission. 401 without a session, 403 without the
    permission or the CSRF token."""

    async def needed(request: Request, person: Annotated[Person | None, Depends(person_now)]) -> Person:
        if person is None:
            raise ProblemError(401, "sign in first")
        if request.method not in SAFE_METHODS:
            sent = request.headers.get(CSRF_HEADER, "")
            if not secrets.compare_digest(sent.encode(), person.csrf.encode()):
                raise ProblemError(403, f"{CSRF_HEADER} is missing or of another session: load the page again")
        if not may(person, permission):
            raise ProblemError(403, refusal(person, permission))
        return person

    needed.permission = permission  # type: ignore[attr-defined]  # a test reads it of every route
    return needed


def refusal(person: Person, permission: Permission) -> str:
    """Why the person lacks the permission."""
    if permission == "records" and person.role == "annotator":
        return f"{person.name} is an annotator here: annotators see their queues alone, so that votes stay blind"
    return f"this takes the role {' or '.join(roles_with(permission))}; {person.name} has {person.role}"


def anybody() -> None:
    """A dependency that marks a route as open to visitors who are not signed in."""


PersonNow = Annotated[Person | None, Depends(person_now)]
Anybody = Annotated[None, Depends(anybody)]
Visitor = Annotated[Person, Depends(needs("queues"))]
Viewer = Annotated[Person, Depends(needs("records"))]
Annotator = Annotated[Person, Depends(needs("vote"))]
Curator = Annotated[Person, Depends(needs("curate"))]
Admin = Annotated[Person, Depends(needs("administer"))]
