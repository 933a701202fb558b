"""Routes for programs: push pairs, pull votes and decisions page by page behind a cursor. `assay.client` speaks them.

They ask for the same permissions as the page: pushing is a curator's, and votes and decisions are records, which
annotators may not read; queues of other projects are not there. Leaves out: making queues and adding items to them,
which are the page's own routes (`assay_web.annotate.queue_routes`).
"""

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, JsonValue

from assay.errors import BadInputError
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.votes import ChangedVote, changed_votes
from assay_pipelines.importers.records import METADATA, store_records
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator, Viewer
from assay_web.access.queue_access import QueueName
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow

router = APIRouter(tags=["records"], route_class=AuditedRoute)

MOST = 1_000  #: records of a request, and of a page
SETTLED_S = 1.0  #: votes of the last moments are left to the next page: their transactions may end in another order
TEXT = 1_000_000
Text = Annotated[str, Field(max_length=TEXT)]
Conversation = Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=500)]


class PairRecord(RequestBody):
    """A pair: two responses to a prompt, or `chosen` and `rejected`. `label`: which is better, where that is known;
    `id`: the program's own. `metadata`: kept as it is."""

    prompt: Text | Conversation
    response_a: Text | Conversation | None = None
    response_b: Text | Conversation | None = None
    chosen: Text | Conversation | None = None
    rejected: Text | Conversation | None = None
    label: Literal["A", "B", "tie"] | None = None
    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    category: Annotated[str, Field(max_length=200)] | None = None
    metadata: dict[str, JsonValue] = Field({})


class NewRecords(RequestBody):
    """`source`: the name under which the workspace has them."""

    source: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^/\x00-\x1f]+$")]
    records: Annotated[list[PairRecord], Field(min_length=1, max_length=MOST)]


class RecordRefusal(BaseModel):
    """`index`: 0-based in the request. `field`: null where it is the whole record."""

    index: int
    field: str | None
    reason: str


class RecordsReply(BaseModel):
    """`comparison_ids`: in the request's order, null for what was rejected. `new`: those the workspace had not."""

    run: str
    comparison_ids: list[str | None]
    new: int
    rejected: list[RecordRefusal]


class VotedPrinciple(BaseModel):
    """What was said of a principle with a vote. `response`: A or B."""

    response: str
    principle: str
    answer: str
    evidence: str | None


class ChangedVoteReply(BaseModel):
    """A vote. `answer`: A, B, tie, skip, ... in the comparison's own order, or "answered" with `labels`. `withdrawn`:
    it was taken back; it may have been on an earlier page. `check`: it is on a gold check. `at`: seconds since the
    epoch."""

    vote: str
    comparison_id: str
    annotator: str
    role: str
    answer: str
    strength: int | None
    rationale: str | None
    labels: JsonValue
    principles: list[VotedPrinciple]
    seconds: float | None
    at: float
    withdrawn: bool
    check: bool


class VotesPage(BaseModel):
    """In the order in which they were cast or taken back. `cursor`: to ask for what comes after; also of an empty
    page."""

    votes: list[ChangedVoteReply]
    cursor: str
    more: bool


class DecisionReply(BaseModel):
    """What curation or a queue's votes concluded of a comparison. `at`: seconds since the epoch."""

    comparison_id: str
    pool: str
    label: str | None
    margin: float | None
    rule: str
    reason: str
    run: str | None
    at: float


class DecisionsPage(BaseModel):
    """In the order in which they were made; a later decision on a comparison replaces an earlier one."""

    decisions: list[DecisionReply]
    cursor: str
    more: bool


Cursor = Annotated[str | None, Query(max_length=100, description="Of the page before; none: from the beginning.")]
Most = Annotated[int, Query(ge=1, le=MOST)]


@router.post("/api/records")
def push_records(body: NewRecords, person: Curator, service: ServiceNow, request: Request) -> RecordsReply:
    """Pairs into the workspace, unverified. The same again adds nothing; what cannot be taken is named, and the rest
    is stored."""
    records = [{**record.model_dump(exclude={METADATA}), METADATA: dict(record.metadata)} for record in body.records]
    report = store_records(service.workspace, records, body.source, person.name)
    note_change(request, body.source, records=len(records), new=report.new, run=report.run_id)
    return RecordsReply(
        run=report.run_id,
        comparison_ids=list(report.comparison_ids),
        new=report.new,
        rejected=[RecordRefusal(**vars(reject)) for reject in report.rejected],
    )


@router.get("/api/records/queues/{queue}/votes")
def pull_votes(
    queue: QueueName, person: Viewer, service: ServiceNow, after: Cursor = None, most: Most = 500
) -> VotesPage:
    """Votes of a queue since the cursor, withdrawals too."""
    at, _, vote_id = (after or "0 ").partition(" ")
    since = (_number(float, at), vote_id)
    with open_ledger(service.workspace) as ledger:
        changes = changed_votes(ledger, queue, since, until=time.time() - SETTLED_S, most=most + 1)
    page = changes[:most]
    cursor = f"{page[-1].changed!r} {page[-1].vote.judgment_id}" if page else (after or "0 ")
    return VotesPage(votes=[_vote(change) for change in page], cursor=cursor, more=len(changes) > most)


@router.get("/api/records/decisions")
def pull_decisions(person: Viewer, service: ServiceNow, after: Cursor = None, most: Most = 500) -> DecisionsPage:
    """Decisions since the cursor."""
    with service.store() as db:
        rows = db.execute(
            """SELECT position, comparison_id, pool, label, margin, rule, reason, run_id, epoch(created_at)
               FROM decisions WHERE position > ? ORDER BY position LIMIT ?""",
            [_number(int, after or "0"), most + 1],
        ).fetchall()
    names = tuple(DecisionReply.model_fields)
    page = rows[:most]
    return DecisionsPage(
        decisions=[DecisionReply(**dict(zip(names, row[1:], strict=True))) for row in page],
        cursor=str(page[-1][0]) if page else (after or "0"),
        more=len(rows) > most,
    )


def _vote(change: ChangedVote) -> ChangedVoteReply:
    vote = change.vote
    return ChangedVoteReply(
        vote=vote.judgment_id,
        comparison_id=vote.comparison_id,
        annotator=vote.annotator,
        role=vote.role,
        answer=vote.answer,
        strength=vote.strength,
        rationale=vote.rationale,
        labels=vote.labels,  # type: ignore[arg-type]  # JSON by its making
        principles=[VotedPrinciple(**each) for each in change.principles],
        seconds=vote.seconds,
        at=vote.at,
        withdrawn=change.withdrawn,
        check=vote.check_label is not None,
    )


def _number(kind: Any, text: str) -> Any:
    try:
        number = kind(text)
        if not 0 <= number < 2**53:
            raise ValueError
        return number
    except ValueError:
        raise BadInputError("that is no cursor of a page of these", field="after") from None
