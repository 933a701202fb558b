"""Routes for administrators: accounts, membership in projects, invitations, the audit log."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from assay.http.problems import ProblemError
from assay_pipelines.annotation.queues import list_queues
from assay_pipelines.annotation.recording import DEFAULT_PROJECT
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Admin
from assay_web.accounts import accounts, invitations, projects
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import Account, Role
from assay_web.accounts.audit_log import AuditLine, audit_names, read_audit
from assay_web.accounts.invitations import Invitation
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["access"], route_class=AuditedRoute)

MOST_LINES = 500
LARGEST_ID = 2**53 - 1  #: largest integer that is exact in JavaScript
Days = Annotated[float, Field(gt=0, le=invitations.LONGEST_DAYS)]


class AccountsReply(BaseModel):
    """By name."""

    accounts: list[Account]


class AccountChange(RequestBody):
    """Fields that are null stay unchanged."""

    role: Role | None = None
    disabled: bool | None = None


class ProjectReply(BaseModel):
    """`members`: accounts by name. `queues`: by name, newest first."""

    name: str
    members: list[str]
    queues: list[str]


class InvitationsReply(BaseModel):
    """Newest first, including used and expired ones."""

    invitations: list[Invitation]


class NewInvitation(RequestBody):
    """For one account with this role and membership, valid for `days`."""

    role: Role
    days: Days = 7.0
    project: Annotated[str, Field(max_length=100)] = DEFAULT_PROJECT


class NewPasswordLink(RequestBody):
    """Valid for `days`."""

    days: Days = 1.0


class LinkReply(BaseModel):
    """`path`: relative to the server's address. Shown once."""

    path: str
    invitation: Invitation


class AuditReply(BaseModel):
    """Newest first. `older`: whether there are older ones. `persons`, `actions`: all that occur in the log."""

    lines: list[AuditLine]
    older: bool
    persons: list[str]
    actions: list[str]


@router.get("/api/accounts")
def get_accounts(person: Admin, service: ServiceNow) -> AccountsReply:
    """Every account."""
    return AccountsReply(accounts=accounts.list_accounts(service.access))


@router.patch("/api/accounts/{name}", status_code=204)
def change_account(name: str, body: AccountChange, person: Admin, request: Request, service: ServiceNow) -> None:
    """Change the role, or disable or enable: takes effect at once, for sessions too. 409 for the only administrator."""
    _with_accounts(service)
    accounts.change_account(service.access, name, role=body.role, disabled=body.disabled)
    note_change(request, name, **body.model_dump(exclude_none=True))


@router.post("/api/accounts/{name}/password-link", status_code=201)
def make_password_link(
    name: str, body: NewPasswordLink, person: Admin, request: Request, service: ServiceNow
) -> LinkReply:
    """A link that resets a forgotten password."""
    _with_accounts(service)
    link = invitations.invite_to_new_password(service.access, name, by=person.name, days=body.days)
    note_change(request, name, days=body.days)
    return _link(*link)


@router.get("/api/projects")
def get_projects(person: Admin, service: ServiceNow) -> list[ProjectReply]:
    """Every project that has a queue or a member."""
    queues: dict[str, list[str]] = {}
    for queue in list_queues(service.workspace):
        queues.setdefault(queue.project, []).append(queue.name)
    members = projects.members(service.access)
    names = sorted({DEFAULT_PROJECT, *queues, *members})
    return [ProjectReply(name=name, members=members.get(name, []), queues=queues.get(name, [])) for name in names]


@router.put("/api/projects/{project}/members/{name}", status_code=204)
def add_member(project: str, name: str, person: Admin, service: ServiceNow) -> None:
    """Make an account a member: with its next request it sees the project's queues."""
    _with_accounts(service)
    projects.join(service.access, name, project)


@router.delete("/api/projects/{project}/members/{name}", status_code=204)
def remove_member(project: str, name: str, person: Admin, service: ServiceNow) -> None:
    """End a membership, with the account's next request."""
    _with_accounts(service)
    projects.leave(service.access, name, project)


@router.get("/api/invitations")
def get_invitations(person: Admin, service: ServiceNow) -> InvitationsReply:
    """Every invitation, without its link."""
    return InvitationsReply(invitations=invitations.list_invitations(service.access))


@router.post("/api/invitations", status_code=201)
def make_invitation(body: NewInvitation, person: Admin, request: Request, service: ServiceNow) -> LinkReply:
    """A link that creates one account with this role."""
    _with_accounts(service)
    token, invitation = invitations.invite(
        service.access, body.role, by=person.name, days=body.days, project=body.project
    )
    note_change(request, invitation.id, role=body.role, days=body.days, project=body.project)
    return _link(token, invitation)


@router.delete("/api/invitations/{invitation_id}", status_code=204)
def withdraw_invitation(invitation_id: str, person: Admin, request: Request, service: ServiceNow) -> None:
    """Invalidate the link."""
    invitation = invitations.withdraw(service.access, invitation_id)
    note_change(request, invitation.id, role=invitation.role)


@router.get("/api/audit")
def get_audit(
    person: Admin,
    service: ServiceNow,
    by: Annotated[str | None, Query(max_length=100, description="Whose changes; empty: of nobody signed in.")] = None,
    action: Annotated[str | None, Query(max_length=100)] = None,
    subject: Annotated[str | None, Query(max_length=200, description="A part of it.")] = None,
    before: Annotated[
        int | None, Query(ge=0, le=LARGEST_ID, description="Only lines older than the one with this id.")
    ] = None,
    most: Annotated[int, Query(ge=1, le=MOST_LINES)] = 100,
) -> AuditReply:
    """Who changed what, when, from where."""
    # A separate connection: reading a long log must not delay votes.
    with AccessFile(service.access.path) as file:
        lines = read_audit(file, person=by, action=action, subject=subject, before=before, most=most + 1)
        persons, actions = audit_names(file)
    return AuditReply(lines=lines[:most], older=len(lines) > most, persons=persons, actions=actions)


def _with_accounts(service: WebService) -> None:
    """Refuse on an open server: any visitor could create an administrator account for a later start with accounts."""
    if service.settings.open_access:
        raise ProblemError(409, "this server runs without accounts: start it without --open to manage them")


def _link(token: str, invitation: Invitation) -> LinkReply:
    return LinkReply(path=invitations.link_of("", token), invitation=invitation)
