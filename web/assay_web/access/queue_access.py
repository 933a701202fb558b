"""Which queues a person sees: those of the projects they are a member of, and all of them for administrators; of queues
that are assigned to some, annotators see theirs alone. And which images in a session: those of the items that they have
before them or have answered.

What is not theirs is answered like what does not exist. Leaves out: what may be done with a queue, and who may read
records, images of theirs included (`permissions`), who is a member (`assay_web.accounts.projects`).
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import Depends, Path

from assay.conversation.message import images_of
from assay.errors import BadInputError, ConflictError, NotFoundError
from assay.http.problems import ProblemError
from assay_pipelines.annotation.recording import Queue
from assay_web.access.guard import PersonNow
from assay_web.access.permissions import may, sees_queue
from assay_web.accounts.groups import groups_of
from assay_web.accounts.projects import projects_of
from assay_web.accounts.sessions import Person
from assay_web.service import ServiceNow, WebService


def sees_project(service: WebService, person: Person, project: str) -> bool:
    return may(person, "administer") or project in projects_of(service.access, person.name)


def visible_queues(service: WebService, person: Person, queues: Iterable[Queue]) -> list[Queue]:
    """Those of them that the person sees, in the same order."""
    members_of = None if may(person, "administer") else projects_of(service.access, person.name)
    return [
        queue
        for queue in queues
        if (members_of is None or queue.project in members_of)
        and sees_queue(person, assigned=is_assigned(service, person, queue.project, queue.people, queue.groups))
    ]


def is_assigned(
    service: WebService, person: Person, project: str, people: Sequence[str] | None, groups: Sequence[str] | None
) -> bool:
    """Whether the person gets items of a queue that is assigned to these; None: to everybody in its project."""
    if people is None or person.name in people:
        return True
    return bool(groups) and not groups_of(service.access, project, person.name).isdisjoint(groups or ())


def require_project(service: WebService, person: Person, project: str) -> None:
    """Raises ProblemError (403) unless the person may make queues in the project, or move them there."""
    if not sees_project(service, person, project):
        raise ProblemError(403, f"{person.name} is no member of the project {project!r}: an admin can change that")


def require_visible(service: WebService, person: Person, queue: str) -> str:
    """The queue's name in records, of its name, title or id. Raises NotFoundError for one that the person does not see,
    without a word of the others there are. A deleted one is seen by those who may restore it."""
    name = queue
    try:
        audience = service.annotation.audience(queue)
        name = audience.name
        assigned = is_assigned(service, person, audience.project, audience.people, audience.groups)
        visible = sees_project(service, person, audience.project) and sees_queue(person, assigned=assigned)
        visible = visible and (not audience.deleted or may(person, "curate"))
    except NotFoundError:
        visible = False
    if not visible:
        raise NotFoundError(f"no queue {queue!r} in the projects of {person.name}")
    return name


def is_assigned_to(service: WebService, person: Person, queue: str) -> bool:
    audience = service.annotation.audience(queue)
    return is_assigned(service, person, audience.project, audience.people, audience.groups)


def require_image(service: WebService, person: Person, queue: str, ticket: str, content_hash: str) -> None:
    """Raises NotFoundError for an image that is in no item of this ticket of the person's in this queue."""
    try:
        assignment = service.annotation.assignment(ticket, person.name)
    except (BadInputError, ConflictError):
        assignment = None
    if assignment is not None and assignment.queue == queue:
        content = assignment.content
        images = [image for turns in (content.prompt, *content.shown_responses) for image in images_of(turns)]
        if any(image.content_hash == content_hash for image in images):
            return
    raise NotFoundError(f"no image {content_hash!r} in an item of {person.name}")


def visible_queue(queue: Annotated[str, Path(max_length=100)], person: PersonNow, service: ServiceNow) -> str:
    """The queue that a path names. 401 without a session; 404 for one of a project that is not the person's."""
    if person is None:
        raise ProblemError(401, "sign in first")
    return require_visible(service, person, queue)


#: For routes: `queue: QueueName`, of a path with {queue}.
QueueName = Annotated[str, Depends(visible_queue)]
