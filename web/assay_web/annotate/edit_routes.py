"""Routes of a queue's settings, for those who run it: guideline with its history, options, name, pause, deletion, whom
it is assigned to, who is admitted, notes on items.

Two who edit one guideline: the second gets 409 and nothing is stored; the history has the first's text. Leaves out:
making, closing and moving queues (`queue_routes`), many items at once (`item_routes`).
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from assay.annotation.queue_changes import QueueChange
from assay.errors import BadInputError
from assay_pipelines.annotation.admission import Admission, admission_of
from assay_pipelines.annotation.assignment import block_of
from assay_pipelines.annotation.notes import LONGEST_NOTE, ItemNote, queue_notes, resolve_note
from assay_pipelines.annotation.queue_edits import (
    LONGEST_GUIDELINE,
    LONGEST_TITLE,
    admit,
    ask_people,
    edit_guideline,
    edit_options,
    read_guideline,
    rename_queue,
    turn_queue,
)
from assay_pipelines.annotation.queue_options import SuggestionTime
from assay_pipelines.annotation.queue_state import GuidelineVersion, listed_changes
from assay_pipelines.annotation.queues import find_queue, list_queues
from assay_pipelines.annotation.service import queue_row
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator
from assay_web.access.queue_access import QueueName, require_project, visible_queues
from assay_web.accounts import projects
from assay_web.accounts.accounts import list_accounts
from assay_web.accounts.groups import groups_in, set_group
from assay_web.annotate.live import LiveNow
from assay_web.annotate.queue_routes import QueueReply, queue_now
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["queues"], route_class=AuditedRoute)

Names = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=1_000)]
_LISTED = ("options", "renamed", "paused", "resumed", "deleted", "restored", "asked", "guideline", "admission")


class QueueOptionsReply(BaseModel):
    """`suggested_by`: judges whose answers are shown; empty: all. `qualify_checks`: items with a known answer asked
    first, `qualify_share`: least share of them right; `gate_checks`, `gate_share`: the same later. 0 checks: no
    rule."""

    description: str
    priority: int
    suggestions: SuggestionTime
    suggested_by: list[str]
    qualify_checks: int
    qualify_share: float
    gate_checks: int
    gate_share: float


class QueueAdmission(BaseModel):
    """Where somebody stands with the queue's rules."""

    annotator: str
    state: Literal["open", "pending", "admitted", "failed", "held"]
    reason: str
    checks: int
    right: int
    person: str | None


class QueueEvent(BaseModel):
    """A change and who made it; null for a rule of the queue. `detail`: what it is now."""

    change: str
    detail: dict[str, Any]
    person: str | None
    at: float


class QueueSettingsReply(BaseModel):
    """`guideline`: the current version. `people`, `groups`: whom it is assigned to; null: to every member of the
    project. `known_people`, `known_groups`: of the project, by name. `judges`: whose answers its items carry. `checks`:
    items with a known answer. `history`: changes, newest first."""

    queue: QueueReply
    options: QueueOptionsReply
    guideline: GuidelineVersion
    people: list[str] | None
    groups: list[str] | None
    known_people: list[str]
    known_groups: dict[str, list[str]]
    judges: list[str]
    checks: int
    admissions: list[QueueAdmission]
    history: list[QueueEvent]


class GuidelineEdit(RequestBody):
    """`version`: the one that was edited."""

    text: Annotated[str, Field(max_length=LONGEST_GUIDELINE)]
    version: Annotated[int, Field(ge=1)]


class QueueEdit(RequestBody):
    """Fields that are null stay as they are."""

    title: Annotated[str, Field(min_length=1, max_length=LONGEST_TITLE)] | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    suggestions: SuggestionTime | None = None
    suggested_by: Names | None = None
    qualify_checks: Annotated[int, Field(ge=0, le=100)] | None = None
    qualify_share: Annotated[float, Field(ge=0, le=1)] | None = None
    gate_checks: Annotated[int, Field(ge=0, le=1000)] | None = None
    gate_share: Annotated[float, Field(ge=0, le=1)] | None = None


class QueueTurn(RequestBody):
    """`change`: to what state."""

    change: Literal["paused", "resumed", "deleted", "restored"]


class QueueAssignment(RequestBody):
    """Null for both: every member of the project."""

    people: Names | None = None
    groups: Names | None = None


class AdmissionByHand(RequestBody):
    """Whatever the checks say."""

    state: Literal["admitted", "held"]


class NoteResolution(RequestBody):
    """`reply`: what its writer reads."""

    resolved: bool = True
    reply: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""


class GroupPeople(RequestBody):
    """None: there is no such group any more."""

    people: Names


@router.get("/api/queues-deleted")
def get_deleted_queues(person: Curator, service: ServiceNow, live: LiveNow) -> list[QueueReply]:
    """Those of one's projects, to be restored."""
    queues = visible_queues(service, person, list_queues(service.workspace, deleted=True))
    return [queue_now(service, live, queue.name, person) for queue in queues]


@router.get("/api/queues/{queue}/settings")
def get_queue_settings(queue: QueueName, person: Curator, service: ServiceNow, live: LiveNow) -> QueueSettingsReply:
    """Everything that may be edited, and what was."""
    annotation = service.annotation
    record = find_queue(annotation.ledger, queue)
    with annotation.ledger.reading() as db:
        row = queue_row(db, record.name)
        names = [
            name
            for (name,) in db.execute(
                """SELECT annotator FROM votes JOIN items USING (item_id) WHERE queue = :queue AND role = 'vote'
                   UNION SELECT annotator FROM admissions WHERE queue_id = :id ORDER BY 1""",
                {"queue": record.name, "id": record.id},
            )
        ]
        block = block_of(record.gold_checks)
        admissions = [_admission(name, admission_of(db, row, name, block)) for name in names]
        judges = [
            name
            for (name,) in db.execute(
                """SELECT DISTINCT o.value ->> 'judge' FROM items i JOIN payloads p USING (item_id),
                   json_each(p.payload, '$.opinions') o WHERE i.queue = ? ORDER BY 1""",
                (record.name,),
            )
        ]
        history = [_event(change) for change in listed_changes(db, record.id, _LISTED)]
    groups = groups_in(service.access, record.project)
    return QueueSettingsReply(
        queue=queue_now(service, live, record.name, person),
        options=QueueOptionsReply(**record.options.to_dict()),
        guideline=read_guideline(annotation, record.name)[0],
        people=list(record.people) if record.people is not None else None,
        groups=list(record.groups) if record.groups is not None else None,
        known_people=_project_people(service, record.project, names),
        known_groups=groups,
        judges=judges,
        checks=record.checks,
        admissions=admissions,
        history=history,
    )


@router.get("/api/queues/{queue}/guideline")
def get_guideline_history(queue: QueueName, person: Curator, service: ServiceNow) -> list[GuidelineVersion]:
    """All versions, newest first, with who wrote them and when."""
    return read_guideline(service.annotation, queue)


@router.put("/api/queues/{queue}/guideline")
def edit_queue_guideline(
    queue: QueueName, body: GuidelineEdit, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> GuidelineVersion:
    """A new version; annotators see it with their next item, and votes say which one was shown. 409 when somebody else
    has edited that version meanwhile: nothing is stored then."""
    version = edit_guideline(service.annotation, queue, body.text, person.name, version=body.version)
    note_change(request, queue, version=version.version)
    live.forget(queue)
    return version


@router.patch("/api/queues/{queue}")
def edit_queue(
    queue: QueueName, body: QueueEdit, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> QueueReply:
    """Its name on the page, description, order, suggestions and rules of gold checks."""
    changed = body.model_dump(exclude_none=True)
    note_change(request, queue, **changed | ({"description": "changed"} if "description" in changed else {}))
    if (title := changed.pop("title", None)) is not None:
        rename_queue(service.annotation, queue, title, person.name)
    if "suggested_by" in changed:
        changed["suggested_by"] = tuple(changed["suggested_by"])
    if changed:
        edit_options(service.annotation, queue, changed, person.name)
    return queue_now(service, live, queue, person)


@router.put("/api/queues/{queue}/state")
def turn_queue_by_name(
    queue: QueueName, body: QueueTurn, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> QueueReply:
    """Pause or resume it, delete or restore it. Votes stay, and the name stays theirs."""
    turn_queue(service.annotation, queue, body.change, person.name)
    note_change(request, queue, change=body.change)
    return queue_now(service, live, queue, person)


@router.put("/api/queues/{queue}/people")
def assign_queue(
    queue: QueueName, body: QueueAssignment, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> QueueReply:
    """To people and groups of its project: nobody else gets items of it, and other annotators do not see it."""
    project = service.annotation.audience(queue).project
    _require_people(service, project, body.people or ())
    if unknown := sorted(set(body.groups or ()) - set(groups_in(service.access, project))):
        raise BadInputError(f"there is no group {unknown[0]!r} in this project")
    ask_people(service.annotation, queue, body.people, body.groups, person.name)
    note_change(request, queue, people=body.people, groups=body.groups)
    return queue_now(service, live, queue, person)


@router.put("/api/queues/{queue}/admissions/{name}", status_code=204)
def admit_by_hand(
    queue: QueueName, name: str, body: AdmissionByHand, person: Curator, service: ServiceNow, request: Request
) -> None:
    """Admit somebody, or hold them back; their checks count anew from now on."""
    admit(service.annotation, queue, name, body.state, person.name)
    note_change(request, queue, annotator=name, state=body.state)


@router.get("/api/queues/{queue}/notes")
def get_queue_notes(queue: QueueName, person: Curator, service: ServiceNow) -> list[ItemNote]:
    """Everybody's flags and comments, open ones first."""
    return queue_notes(service.annotation.ledger, queue)


@router.put("/api/queues/{queue}/notes/{note}")
def resolve_queue_note(
    queue: QueueName, note: str, body: NoteResolution, person: Curator, service: ServiceNow, request: Request
) -> ItemNote:
    """Say that it is dealt with, or open it again."""
    resolved = resolve_note(service.annotation, queue, note, person.name, resolved=body.resolved, reply=body.reply)
    note_change(request, queue, note=note, resolved=body.resolved)
    return resolved


@router.put("/api/projects/{project}/groups/{name}", status_code=204)
def set_project_group(
    project: str, name: str, body: GroupPeople, person: Curator, service: ServiceNow, request: Request
) -> None:
    """Who is in a group of a project; nobody: the group is gone."""
    require_project(service, person, project)
    _require_people(service, project, body.people)
    set_group(service.access, project, name, body.people)
    note_change(request, f"{project}/{name}", people=body.people)


def _require_people(service: WebService, project: str, names: Sequence[str]) -> None:
    """Raises BadInputError for somebody who is no member of the project; a server without accounts knows nobody."""
    if service.settings.open_access:
        return
    members = set(_project_people(service, project, ()))
    if strangers := [name for name in names if name not in members]:
        raise BadInputError(f"{strangers[0]} is no member of the project {project!r}")


def _project_people(service: WebService, project: str, names: Sequence[str]) -> list[str]:
    """Who may be asked, by name; on a server without accounts those who have been here."""
    if service.settings.open_access:
        return sorted(set(names), key=str.casefold)
    voters = {account.name for account in list_accounts(service.access) if account.role != "viewer"}
    admins = {account.name for account in list_accounts(service.access) if account.role == "admin"}
    return sorted(voters & set(projects.members(service.access).get(project, ())) | admins, key=str.casefold)


def _admission(name: str, admission: Admission) -> QueueAdmission:
    return QueueAdmission(
        annotator=name,
        state=admission.state,
        reason=admission.reason,
        checks=admission.checks,
        right=admission.right,
        person=admission.person,
    )


def _event(change: QueueChange) -> QueueEvent:
    return QueueEvent(change=change.change, detail=dict(change.detail), person=change.person, at=change.at)
