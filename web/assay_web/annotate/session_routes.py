"""Routes of an annotation session: the item before an annotator, votes, undo, adjudication, live figures.

Covers: one round trip that casts a vote, durably, and brings the next item. Leaves out: queues as a whole
(`queue_routes`), the rules (`assay_pipelines.annotation.service`).
"""

import math
from contextlib import suppress
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from assay.errors import AssayError, BadInputError, ConflictError
from assay.http.problems import ProblemError
from assay_pipelines.annotation.admission import Admission
from assay_pipelines.annotation.assignment import Assignment, Ticket
from assay_pipelines.annotation.items import shown_opinions
from assay_pipelines.annotation.own_answers import standing_answer
from assay_pipelines.annotation.quality.agreement import AgreementReport
from assay_pipelines.annotation.quality.annotators import OwnFigures, own_figures
from assay_pipelines.annotation.question_types.question_type import QUESTION_TYPES, question_type
from assay_pipelines.annotation.queue_options import SuggestionTime
from assay_pipelines.annotation.queues import QueueProgress, find_queue
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.service import AnnotationService
from assay_web.access.audited_route import AuditedRoute, Unaudited, note_change
from assay_web.access.guard import Annotator, Curator, Visitor, refusal
from assay_web.access.permissions import may, visible_agreement, visible_opinions, visible_own_figures
from assay_web.access.queue_access import QueueName, is_assigned_to
from assay_web.accounts.sessions import Person
from assay_web.annotate.items import (
    AnnotationItem,
    OwnAnswerReply,
    QuestionTypeReply,
    ReceiptReply,
    RevealedOpinion,
    VoteBody,
    answer_reply,
    item_reply,
    receipt_reply,
    vote_replies,
)
from assay_web.annotate.live import LiveFigures, LiveNow, QueueState
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["annotate"], route_class=AuditedRoute)

#: Progress is rounded to steps: with exact figures a lone annotator could tell which vote was on a gold check.
STEP = 0.05
MOST_ITEMS = 2**53 - 1  #: of a file; largest integer that is exact in JavaScript


class AnnotationProgress(BaseModel):
    """`share`: of the queue's items that are done, rounded down to a twentieth. `mine`: this person's standing votes,
    gold checks included; `passed`: items that they passed on. `last`: the ticket that an undo would take back.
    `waiting`: for an adjudicator, the items without a majority that they can have, the one before them included.

    `answered` of `expected`: what this person has answered or passed on, of what it comes to when all that is open to
    them is done, both with gold checks; null for an adjudicator. An answer never changes `expected`, be it on a check
    or not; others' answers may. `qualifying`: these are the items of a qualification alone."""

    share: float
    mine: int
    passed: int
    last: str | None
    waiting: int | None
    answered: int
    expected: int | None
    qualifying: bool


EmptyReason: TypeAlias = Literal["closed", "done", "waiting", "paused", "not_assigned", "failed", "held"]


class AnnotationReply(BaseModel):
    """`item` is null when there is nothing for this person: `empty` then says why. "waiting": what is left is before
    others now; "paused": until the queue is resumed; "not_assigned": it is assigned to others; "failed": the
    qualification; "held": below the share of right answers since; `reason` of both in one line. `title`: the queue's
    name as people see it. `guideline_version`: goes back with the vote. `previous`: what stands of this person on the
    item, where they change an answer. `suggestions`: when the queue shows judges' answers."""

    item: AnnotationItem | None
    progress: AnnotationProgress
    title: str
    guideline: str
    guideline_version: int
    lease_seconds: float
    suggestions: SuggestionTime
    previous: OwnAnswerReply | None
    empty: EmptyReason | None
    reason: str


class VoteReply(BaseModel):
    """`next` is null as in AnnotationReply, or when it could not be fetched: ask for it then."""

    receipt: ReceiptReply
    next: AnnotationReply | None


class TicketBody(RequestBody):
    """An item by its ticket."""

    ticket: str


class UndoBody(TicketBody):
    """`ticket`: of the vote to take back. `held`: of the item that is before the person meanwhile; it comes after."""

    held: str | None = None


class LeaseReply(BaseModel):
    """`expires_at`: seconds since the epoch."""

    expires_at: float


class RevealReply(BaseModel):
    """The item again, to be decided with sight of the others' votes."""

    item: AnnotationItem
    votes: list[RevealedOpinion]


class LiveReply(BaseModel):
    """`voting`: people who voted here within the last minutes. `conflicts`: items without a majority, for those who may
    adjudicate. `agreement`: null for annotators until the queue is closed."""

    share: float
    people: int
    voting: int
    conflicts: int | None
    agreement: AgreementReport | None


@router.get("/api/annotate/question-types")
def get_question_types(person: Visitor) -> list[QuestionTypeReply]:
    """The ways to ask about an item, with the words that front ends show."""
    types = {name: question_type(name) for name in QUESTION_TYPES.names()}
    return [QuestionTypeReply(name=name, component=t.component, words=dict(t.words())) for name, t in types.items()]


@router.post("/api/annotate/queues/{queue}/item")
def take_item(
    queue: QueueName,
    person: Annotator,
    service: ServiceNow,
    live: LiveNow,
    _: Unaudited,
    item: Annotated[int | None, Query(ge=1, le=MOST_ITEMS, description="This one, by its number in the queue.")] = None,
) -> AnnotationReply:
    """The item that the person has before them, or the next one. 409 for a named one that is not open to them."""
    return _session(service, live, queue, person, adjudicating=False, item=item)


@router.post("/api/annotate/queues/{queue}/conflict")
def take_conflict(
    queue: QueueName, person: Curator, service: ServiceNow, live: LiveNow, _: Unaudited
) -> AnnotationReply:
    """An item whose votes have no majority, for somebody who did not vote on it."""
    return _session(service, live, queue, person, adjudicating=True)


@router.post("/api/annotate/queues/{queue}/votes")
def cast_vote(
    queue: QueueName, body: VoteBody, person: Annotator, service: ServiceNow, live: LiveNow, request: Request
) -> VoteReply:
    """Cast a vote; the reply says that it is durable, and brings the next item."""
    if body.person != person.name:
        raise ProblemError(403, f"this vote is {body.person}'s; {person.name} is signed in", code="another_person")
    adjudicating = _may_adjudicate(body.ticket, person)
    annotation = service.annotation
    queue_now = live.state(queue).queue
    guideline = body.guideline_version if (body.guideline_version or 0) <= queue_now.guideline_version else None
    receipt = annotation.cast(
        body.ticket, person.name, body.submission(), seal=body.seal, queue=queue, guideline=guideline
    )
    note_change(request, queue, judgment=receipt.judgment_id, repeated=receipt.repeated)
    try:  # whatever happens now, the vote is cast: the reply must say so
        votes = _other_votes(annotation, receipt.assignment) if adjudicating else []
        following = _session(service, live, queue, person, adjudicating=adjudicating)
    except AssayError:
        votes, following = [], None
    judges = () if may(person, "records") else queue_now.options.suggested_by
    opinions_shown = shown_opinions(receipt.assignment.payload, judges)
    opinions = visible_opinions(person, opinions_shown, queue_now.options.suggestions)
    return VoteReply(receipt=receipt_reply(receipt, opinions, votes), next=following)


@router.post("/api/annotate/queues/{queue}/undo")
def undo_vote(
    queue: QueueName, body: UndoBody, person: Annotator, service: ServiceNow, live: LiveNow, request: Request
) -> AnnotationReply:
    """Take one's last vote back; its item comes again. Repeated for the same ticket it takes nothing else back."""
    annotation = service.annotation
    _assignment(annotation, body.ticket, person, queue)
    adjudicating = _may_adjudicate(body.ticket, person)
    again = annotation.undo(queue, person.name, adjudication=adjudicating, ticket=body.ticket)
    if body.held is not None and (again is None or body.held != again.ticket):
        with suppress(ConflictError):  # given away already
            annotation.release(annotation.assignment(body.held, person.name))
    note_change(request, queue, ticket=body.ticket)
    return _session(service, live, queue, person, adjudicating=adjudicating)


@router.post("/api/annotate/queues/{queue}/renewal")
def renew_lease(queue: QueueName, body: TicketBody, person: Annotator, service: ServiceNow, _: Unaudited) -> LeaseReply:
    """Say that one is still at the item. 409 when it was given away."""
    annotation = service.annotation
    return LeaseReply(expires_at=annotation.renew(_assignment(annotation, body.ticket, person, queue)))


@router.post("/api/annotate/queues/{queue}/release", status_code=204)
def release_item(queue: QueueName, body: TicketBody, person: Annotator, service: ServiceNow, _: Unaudited) -> None:
    """Give the item back undecided."""
    service.annotation.release(_assignment(service.annotation, body.ticket, person, queue))


@router.post("/api/annotate/queues/{queue}/reveal")
def reveal_votes(queue: QueueName, body: TicketBody, person: Curator, service: ServiceNow) -> RevealReply:
    """Show an adjudicator the votes before their own, which the records then say."""
    annotation = service.annotation
    assignment = annotation.reveal(_assignment(annotation, body.ticket, person, queue))
    return RevealReply(item=item_reply(assignment), votes=_other_votes(annotation, assignment))


@router.get("/api/annotate/queues/{queue}/live")
def get_live_figures(queue: QueueName, person: Visitor, live: LiveNow) -> LiveReply:
    """How far the queue is and how far people agree, some seconds old."""
    state = live.state(queue)
    progress = state.progress
    return LiveReply(
        share=share_done(progress),
        people=len(progress.annotators),
        voting=state.voting,
        conflicts=progress.conflicts if may(person, "curate") else None,
        agreement=visible_agreement(person, live.agreement(queue), closed=state.queue.closed),
    )


@router.get("/api/annotate/queues/{queue}/own")
def get_own_figures(queue: QueueName, person: Annotator, service: ServiceNow) -> OwnFigures:
    """One's own gold checks, agreement and speed, by whole blocks of items: nothing tells which item was a check. The
    agreement with others is left out (0 compared) for annotators until the queue is closed."""
    with open_ledger(service.workspace) as ledger:
        figures, closed = own_figures(ledger, queue, person.name), find_queue(ledger, queue).closed
    return visible_own_figures(person, figures, closed=closed)


def share_done(progress: QueueProgress) -> float:
    if not progress.items:
        return 0.0
    return 1.0 if progress.done >= progress.items else math.floor(progress.done / progress.items / STEP) * STEP


def _session(
    service: WebService, live: LiveFigures, queue: str, person: Person, *, adjudicating: bool, item: int | None = None
) -> AnnotationReply:
    annotation = service.annotation
    assigned = adjudicating or is_assigned_to(service, person, queue)
    if adjudicating:
        assignment = annotation.next_conflict(queue, person.name)
    else:
        others = may(person, "records")
        assignment = annotation.next(queue, person.name, item, others=others) if assigned else None
    return session_reply(service, live, queue, person, assignment, adjudicating=adjudicating, assigned=assigned)


def session_reply(
    service: WebService,
    live: LiveFigures,
    queue: str,
    person: Person,
    assignment: Assignment | None,
    *,
    adjudicating: bool = False,
    assigned: bool = True,
) -> AnnotationReply:
    """`assignment`: what is before the person. `assigned`: whether the queue is theirs."""
    annotation = service.annotation
    standing = annotation.standing(queue, person.name, adjudication=adjudicating)
    if assignment is None:
        live.forget(queue)
    state = live.state(queue)
    before = standing_answer(annotation, assignment) if assignment is not None and not adjudicating else None
    judges = state.queue.options.suggested_by
    return AnnotationReply(
        item=item_reply(assignment, judges) if assignment is not None else None,
        progress=AnnotationProgress(
            share=share_done(state.progress),
            mine=standing.votes,
            passed=standing.passed,
            last=standing.last,
            waiting=standing.waiting,
            answered=standing.votes + standing.passed,
            expected=standing.expected,
            qualifying=standing.admission.state == "pending",
        ),
        title=state.queue.title,
        guideline=state.queue.guideline,
        guideline_version=state.queue.guideline_version,
        lease_seconds=state.queue.lease_seconds,
        suggestions=state.queue.options.suggestions,
        previous=answer_reply(before) if before is not None else None,
        empty=_why_nothing(state, standing.admission, adjudicating, assigned) if assignment is None else None,
        reason="" if standing.admission.works else standing.admission.reason,
    )


def _assignment(annotation: AnnotationService, ticket: str, person: Person, queue: str) -> Assignment:
    """The person's assignment. Raises BadInputError for one of another queue than the path's."""
    assignment = annotation.assignment(ticket, person.name)
    if assignment.queue != queue:
        raise BadInputError("that item is of another queue", field="ticket")
    return assignment


def _other_votes(annotation: AnnotationService, assignment: Assignment) -> list[RevealedOpinion]:
    votes = annotation.votes_on(assignment)
    return vote_replies(votes, annotation.principles_with(votes), assignment)


def _why_nothing(state: QueueState, admission: Admission, adjudicating: bool, assigned: bool) -> EmptyReason:
    if adjudicating:
        return "done"
    if state.queue.closed:
        return "closed"
    if not assigned:
        return "not_assigned"
    if admission.state in ("failed", "held"):
        return admission.state
    if state.queue.paused:
        return "paused"
    return "waiting" if state.progress.leased and state.queue.overlap != "all" else "done"


def _may_adjudicate(ticket: str, person: Person) -> bool:
    """Whether the item is an adjudicator's. Raises ProblemError for one that the person may not decide any more."""
    if (parsed := Ticket.parse(ticket)) is None or parsed.role == "vote":
        return False
    if not may(person, "curate"):
        raise ProblemError(403, refusal(person, "curate"))
    return True
