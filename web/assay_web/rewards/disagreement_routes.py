"""Routes of the disagreement explorer: raters, agreement of two, contradicting pairs, sending pairs to a queue."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import AliasPath, BaseModel, Field

from assay.browsing.messages import ConversationTurn
from assay.runs.record import start_run
from assay.store.scored_models import scored_models
from assay_pipelines.annotation.queues import add_items, create_queue, get_queue, list_queues
from assay_pipelines.annotation.recording import DEFAULT_PROJECT
from assay_pipelines.curation.disagreement import (
    ContradictionFilter,
    Order,
    Rater,
    Supports,
    agreement_of,
    contradictions,
    known_annotators,
    most_in_common,
    queue_items,
)
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator, Viewer
from assay_web.access.queue_access import require_project, require_visible, visible_queues
from assay_web.rewards.interval import FromRecord, WithInterval
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow

router = APIRouter(tags=["rewards"], route_class=AuditedRoute)

PAGE = 20
MOST_MODELS = 32  #: with the most scores, of which the two to begin with are looked for

Reference = Annotated[str, Query(max_length=20_000)]


class RaterEntry(BaseModel):
    """A source of preferences: a model's stored scores, or an annotator's judgments. `rated`:
    responses with scores, or comparisons judged."""

    reference: str
    kind: str
    name: str
    rated: int


class Raters(BaseModel):
    """Scored models first, then annotators. `start`: references of the two to begin with, which rated the most
    comparisons both; null where no two have one in common."""

    raters: list[RaterEntry]
    start: tuple[str, str] | None


class AgreementReply(WithInterval):
    """How often two raters prefer the same response. `tied`: pairs where one has no preference; `share`: agreed on, of
    the pairs where both have one, with its 95 % interval. The last three are of those they disagree on: whom the label
    in force supports."""

    first: str
    second: str
    common: int
    agree: int
    disagree: int
    tied: int
    share: float | None
    label_supports_first: int = Field(validation_alias=AliasPath("supports", "first"))
    label_supports_second: int = Field(validation_alias=AliasPath("supports", "second"))
    unlabelled: int = Field(validation_alias=AliasPath("supports", "unlabelled"))


class PairSide(FromRecord):
    """What one rater says. `margin`: reward A - reward B, or the confidence with the sign of the judgment;
    `relative_margin`: over its root mean square. `probability`: of its own preference, null where nothing gives one."""

    prefers: Literal["A", "B"]
    margin: float
    relative_margin: float
    probability: float | None
    reward_a: float | None
    reward_b: float | None
    uncertainty_a: float | None
    uncertainty_b: float | None


class DisagreedPair(FromRecord):
    """A pair on which the raters prefer different responses. Long responses are cut; `characters_*`: whole."""

    comparison_id: str
    prompt: list[ConversationTurn]
    response_a: str
    response_b: str
    characters_a: int = Field(validation_alias=AliasPath("characters", 0))
    characters_b: int = Field(validation_alias=AliasPath("characters", 1))
    pool: str
    label: str | None
    supports: Supports
    first: PairSide
    second: PairSide


class DisagreementPage(BaseModel):
    """A page of `total` pairs, the surest contradiction first."""

    pairs: list[DisagreedPair]
    total: int
    page_size: int


class OpenQueue(BaseModel):
    """A queue that takes items."""

    name: str
    items: int
    overlap: int | Literal["all"]


class OpenQueues(BaseModel):
    """The newest first."""

    queues: list[OpenQueue]


class SendToQueue(RequestBody):
    """Pairs to ask people about. A new queue is made where none has the name, with `overlap` people an item. `note`:
    shown to them beside each pair, after the names of the two raters."""

    first: Annotated[str, Field(max_length=20_000)]
    second: Annotated[str, Field(max_length=20_000)]
    comparison_ids: Annotated[list[str], Field(min_length=1, max_length=1_000)]
    queue: Annotated[str, Field(min_length=1, max_length=100)]
    overlap: Annotated[int, Field(ge=1, le=50)] = 1
    note: Annotated[str, Field(max_length=500)] = ""


class SentToQueue(BaseModel):
    """`added`: pairs that the queue did not have. `made`: whether the queue is new."""

    queue: str
    added: int
    items: int
    made: bool
    run_id: str


@router.get("/api/rewards/raters")
def list_raters(person: Viewer, service: ServiceNow) -> Raters:
    """Everything that can be compared: stored scores by model and principle, annotators' judgments."""
    with service.store() as db:
        scored, annotators = scored_models(db), known_annotators(db)
        raters = [Rater(one.version, one.template_hash, one.principle) for one in scored if one.scored]
        start = most_in_common(db, raters[:MOST_MODELS] + [Rater(annotator_id=one.annotator_id) for one in annotators])
    entries = [
        RaterEntry(
            reference=Rater(one.version, one.template_hash, one.principle).reference,
            kind="scores",
            name=f"{one.model}@{one.version[:8]}" + (f" by {one.principle!r}" if one.principle else ""),
            rated=one.scored,
        )
        for one in scored
        if one.scored
    ]
    entries += [
        RaterEntry(
            reference=Rater(annotator_id=one.annotator_id).reference, kind=one.kind, name=one.name, rated=one.opinions
        )
        for one in annotators
    ]
    return Raters(raters=entries, start=(start[0].reference, start[1].reference) if start else None)


@router.get("/api/rewards/agreement")
def read_rater_agreement(person: Viewer, service: ServiceNow, first: Reference, second: Reference) -> AgreementReply:
    """How often two raters prefer the same response."""
    one, two = Rater.parse(first), Rater.parse(second)
    with service.store() as db:
        return AgreementReply.model_validate(agreement_of(db, one, two))


@router.get("/api/rewards/disagreements")
def list_disagreements(
    person: Viewer,
    service: ServiceNow,
    first: Reference,
    second: Reference,
    order: Order = "both",
    pool: str | None = None,
    supports: Supports | None = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> DisagreementPage:
    """A page of the pairs on which two raters prefer different responses."""
    one, two, which = Rater.parse(first), Rater.parse(second), ContradictionFilter(pool, supports, order)
    with service.store() as db:
        pairs, total = contradictions(db, one, two, which, offset=PAGE * (page - 1), limit=PAGE)
    shown = [DisagreedPair.model_validate(pair) for pair in pairs]
    return DisagreementPage(pairs=shown, total=total, page_size=PAGE)


@router.get("/api/rewards/queues")
def list_open_queues(person: Viewer, service: ServiceNow) -> OpenQueues:
    """Queues that pairs can be sent to."""
    return OpenQueues(
        queues=[
            OpenQueue(name=queue.name, items=queue.items, overlap=queue.overlap)
            for queue in visible_queues(service, person, list_queues(service.workspace))
            if not queue.closed
        ]
    )


@router.post("/api/rewards/disagreements/queue")
def send_disagreements_to_queue(
    person: Curator, service: ServiceNow, body: SendToQueue, request: Request
) -> SentToQueue:
    """Ask people about pairs on which two raters disagree: into an open queue, or a new one."""
    one, two = Rater.parse(body.first), Rater.parse(body.second)
    with service.store() as db:
        items = queue_items(db, one, two, body.comparison_ids, body.note)
    is_new = body.queue not in {queue.name for queue in list_queues(service.workspace)}
    if is_new:
        require_project(service, person, DEFAULT_PROJECT)
    else:
        require_visible(service, person, body.queue)
    settings = body.model_dump(exclude={"note"}) | {"by": person.name, "reason": items[0].reason}
    with start_run(service.workspace, "queue-create" if is_new else "queue-extend", settings) as run:
        if is_new:
            added = create_queue(service.workspace, body.queue, items, overlap=body.overlap, run_id=run.id).items
        else:
            added = add_items(service.workspace, body.queue, items, run.id)
        queue = get_queue(service.workspace, body.queue)
        run.metrics.update(added=added, items=queue.items, checks=queue.checks)
    # The run says between whom: a rater's reference holds a principle's text.
    note_change(request, body.queue, added=added, made=is_new, run=run.id)
    return SentToQueue(queue=queue.name, added=added, items=queue.items, made=is_new, run_id=run.id)
