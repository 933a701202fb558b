"""Routes of an annotator's own answers in a queue, and of notes on items: flags and comments to who runs the queue.

Leaves out: voting (`session_routes`), everybody's notes (`edit_routes`).
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from assay_pipelines.annotation.notes import LONGEST_NOTE, ItemNote, NoteKind, add_note, queue_notes
from assay_pipelines.annotation.own_answers import own_answers, reopen_answer
from assay_web.access.audited_route import AuditedRoute, Unaudited, note_change
from assay_web.access.guard import Annotator
from assay_web.access.queue_access import QueueName
from assay_web.annotate.items import OwnAnswerReply, answer_reply
from assay_web.annotate.live import LiveNow
from assay_web.annotate.session_routes import MOST_ITEMS, AnnotationReply, TicketBody, session_reply
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow

router = APIRouter(tags=["annotate"], route_class=AuditedRoute)


class OwnAnswersReply(BaseModel):
    """Newest first. `total`: of all. `changeable`: as long as the queue is open."""

    answers: list[OwnAnswerReply]
    total: int
    changeable: bool


class NewNote(RequestBody):
    """On the item of a ticket: one that is before the person, or that they have answered. `key`: made by the client;
    the same request again is the same note. A flag needs no text."""

    ticket: Annotated[str, Field(max_length=60)]
    kind: NoteKind
    text: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""
    key: Annotated[str, Field(min_length=8, max_length=60)]


@router.get("/api/annotate/queues/{queue}/answers")
def get_own_answers(
    queue: QueueName,
    person: Annotator,
    service: ServiceNow,
    live: LiveNow,
    start: Annotated[int, Query(ge=0, le=MOST_ITEMS)] = 0,
    most: Annotated[int, Query(ge=1, le=200)] = 50,
) -> OwnAnswersReply:
    """One's own answers that stand, gold checks among them as any others."""
    answers, total = own_answers(service.annotation, queue, person.name, start=start, most=most)
    replies = [answer_reply(answer) for answer in answers]
    return OwnAnswersReply(answers=replies, total=total, changeable=not live.state(queue).queue.closed)


@router.post("/api/annotate/queues/{queue}/revision")
def change_own_answer(
    queue: QueueName, body: TicketBody, person: Annotator, service: ServiceNow, live: LiveNow, _: Unaudited
) -> AnnotationReply:
    """The item of an answer of one's own, for another answer: until that is cast the first stands. 409 once the queue
    is closed. `release` leaves it as it is."""
    assignment = reopen_answer(service.annotation, queue, body.ticket, person.name)
    return session_reply(service, live, assignment.queue, person, assignment)


@router.post("/api/annotate/queues/{queue}/notes")
def note_on_item(queue: QueueName, body: NewNote, person: Annotator, service: ServiceNow, request: Request) -> ItemNote:
    """Flag an item, or comment on it, for who runs the queue; durable when it is answered."""
    annotation = service.annotation
    note = add_note(annotation, annotation.assignment(body.ticket, person.name), body.kind, body.text, body.key)
    note_change(request, queue, note=note.id, kind=note.kind)
    return note


@router.get("/api/annotate/queues/{queue}/notes")
def get_own_notes(queue: QueueName, person: Annotator, service: ServiceNow) -> list[ItemNote]:
    """One's own notes in the queue, and what became of them."""
    return queue_notes(service.annotation.ledger, queue, person=person.name)
