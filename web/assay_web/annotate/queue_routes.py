"""Routes of queues: which there are and how far they are, making, extending and closing them, who annotates how well,
what the votes come to and deciding by them.

Leaves out: annotation sessions (`session_routes`), how votes decide (`assay_pipelines.annotation.resolution`).
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from assay.data.snapshots import POOLS, Selection
from assay.errors import BadInputError
from assay.runs.record import start_run
from assay_pipelines.annotation.item_filters import FieldFilter
from assay_pipelines.annotation.items import MOST_PRINCIPLES, QueueItem, principle_statements
from assay_pipelines.annotation.quality.agreement import AgreementReport, LabelAgreement, label_agreement
from assay_pipelines.annotation.quality.annotators import AnnotatorQuality, annotator_quality
from assay_pipelines.annotation.quality.principle_agreement import PrincipleAgreement, principle_agreement
from assay_pipelines.annotation.question_types.question_type import PAIR
from assay_pipelines.annotation.question_types.rating import AnnotationScale
from assay_pipelines.annotation.queues import (
    add_items,
    close_queue,
    create_queue,
    find_queue,
    items_of,
    list_queues,
    move_queue,
    reopen_queue,
)
from assay_pipelines.annotation.recording import DEFAULT_PROJECT, Queue
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.resolution import ResolutionReport, resolve_queue
from assay_pipelines.annotation.tasks import TaskQuestion, create_task_queue, tasks_of
from assay_pipelines.annotation.votes import queue_votes
from assay_pipelines.embedding.similar import similar_comparisons
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator, Visitor
from assay_web.access.permissions import may
from assay_web.access.queue_access import QueueName, is_assigned, require_project, visible_queues
from assay_web.accounts.sessions import Person
from assay_web.annotate.live import RESAMPLES, LiveFigures, LiveNow, QueueState
from assay_web.annotate.session_routes import share_done
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["annotate"], route_class=AuditedRoute)

MOST_SIMILAR = 100  #: of a queue by similarity, where no limit is given


class QueueCounts(BaseModel):
    """Exact figures, for those who run the queue: with them somebody could tell which of their votes were on gold
    checks. `conflicts`: items without a majority or an adjudication. `annotators`: votes by name;
    `passed_by`: items passed on."""

    items: int
    checks: int
    done: int
    votes: int
    conflicts: int
    leased: int
    passed: int
    withdrawn: int
    checked: int
    annotators: dict[str, int]
    passed_by: dict[str, int]


class QueueReply(BaseModel):
    """`share`: of its items that are done, rounded down to a twentieth. `mine`: the reader's standing votes. `voting`:
    people who voted within the last minutes. `counts`: null but for curators. `question`: the type that decides its
    items. `name`: of addresses and records; `title`: what people see. `assigned`: whether the reader gets items."""

    name: str
    title: str
    description: str
    question: str
    project: str
    overlap: int | Literal["all"]
    closed: bool
    paused: bool
    assigned: bool
    guideline: str
    share: float
    mine: int
    people: int
    voting: int
    counts: QueueCounts | None


class AskedScale(RequestBody):
    """What a response is rated on, from `low` to `high`."""

    aspect: Annotated[str, Field(min_length=1, max_length=100)]
    low: Annotated[int, Field(ge=0, le=100)] = 1
    high: Annotated[int, Field(ge=1, le=100)] = 5


class AskedField(RequestBody):
    """Any of these values of an attribute, or of a field of the source's."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    values: Annotated[list[Annotated[str, Field(max_length=1_000)]], Field(min_length=1, max_length=100)]
    attribute: bool = False


class NewQueue(RequestBody):
    """Which comparisons: `comparison_ids`, or those of `pools`, `sources` and `categories` (empty: all). `limit`: at
    most so many, drawn by hash. `overlap`: people who see each, or "all". `gold_checks`: share of what each person is
    shown that has a known answer. `lease_minutes`: until an untouched item goes to others. `principles`: asked of both
    responses of each. `project`: one of the curator's.

    `fields`: what is known of each, all of them. `similar_to`: this one and those nearest to it, `limit` in all.

    `question`: other than "pair" it asks of these comparisons' responses, and of those that are in none where no pool
    is named; `ranking` of their prompts. `scales` of a rating, `labels` of spans; `by_turns`: a turn is a step."""

    name: Annotated[str, Field(max_length=100)]
    pools: list[str] = Field(["unverified"])
    sources: list[str] = Field([])
    categories: list[str] = Field([])
    comparison_ids: Annotated[list[str], Field(max_length=100_000)] | None = None
    fields: list[AskedField] = Field([], max_length=20)
    similar_to: Annotated[str, Field(max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    overlap: Annotated[int, Field(ge=1, le=1_000)] | Literal["all"] = 1
    gold_checks: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    question: Literal["pair", "rating", "steps", "spans", "ranking"] = "pair"
    scales: list[AskedScale] = Field([AskedScale(aspect="overall")], min_length=1, max_length=20)
    labels: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(["error"], min_length=1, max_length=50)
    by_turns: bool = False
    guideline: Annotated[str, Field(max_length=20_000)] = ""
    reason: Annotated[str, Field(max_length=1_000)] = ""
    lease_minutes: Annotated[float, Field(ge=0.1, le=10_080)] = 30.0
    principles: list[str] = Field([], max_length=MOST_PRINCIPLES)
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    project: Annotated[str, Field(max_length=100)] = DEFAULT_PROJECT


class MoreItems(RequestBody):
    """Comparisons to add, why they are asked, and the principles that are asked of both responses."""

    comparison_ids: Annotated[list[str], Field(min_length=1, max_length=100_000)]
    reason: Annotated[str, Field(max_length=1_000)] = ""
    principles: list[str] = Field([], max_length=MOST_PRINCIPLES)


class ItemsAdded(BaseModel):
    """`added`: those that the queue did not have."""

    added: int


class Resolve(RequestBody):
    """`least_votes`: that a majority needs; null for what the queue asks for."""

    least_votes: Annotated[int, Field(ge=1, le=1_000)] | None = None


class QueueProject(RequestBody):
    """`project`: of which the curator is a member too."""

    project: Annotated[str, Field(max_length=100)]


class QueueReport(BaseModel):
    """How well everybody annotates, and how far they agree, on each principle too; `labels`: on ratings, steps, spans
    and orders."""

    annotators: list[AnnotatorQuality]
    agreement: AgreementReport
    principles: list[PrincipleAgreement]
    labels: list[LabelAgreement]


@router.get("/api/queues")
def get_queues(person: Visitor, service: ServiceNow, live: LiveNow) -> list[QueueReply]:
    """The queues of one's projects, newest first."""
    queues = visible_queues(service, person, list_queues(service.workspace))
    return [_reply(service, live.state(queue.name), person) for queue in queues]


@router.get("/api/queues/{queue}")
def get_queue_by_name(queue: QueueName, person: Visitor, service: ServiceNow, live: LiveNow) -> QueueReply:
    """One queue."""
    return _reply(service, live.state(queue), person)


@router.post("/api/queues")
def make_queue(body: NewQueue, person: Curator, service: ServiceNow, live: LiveNow, request: Request) -> QueueReply:
    """Make a queue of comparisons for people; the same again adds what is missing."""
    here = service.workspace
    if body.comparison_ids == []:
        raise BadInputError("no comparison is named: the queue would be empty")
    require_project(service, person, body.project)
    with start_run(here, "queue-create", body.model_dump() | {"person": person.name}) as run:
        shared: dict[str, Any] = {
            "overlap": body.overlap,
            "gold_checks": body.gold_checks,
            "run_id": run.id,
            "guideline": body.guideline,
            "seed": body.seed,
            "lease_seconds": 60 * body.lease_minutes,
            "project": body.project,
        }
        pools = tuple(body.pools) if body.pools or body.question == PAIR else POOLS
        selection = Selection(pools, tuple(body.sources), tuple(body.categories))
        fields = [FieldFilter(field.name, tuple(field.values), field.attribute) for field in body.fields]
        if body.similar_to is not None and body.question == PAIR:
            near = similar_comparisons(here, body.similar_to, selection, most=(body.limit or MOST_SIMILAR) - 1)
            body.comparison_ids = [body.similar_to, *(row.comparison_id for row in near.rows)]
        if body.question != PAIR:
            if body.comparison_ids is not None or body.principles or body.similar_to is not None:
                raise BadInputError("only pairs are asked by id or similarity, and of principles", field="question")
            scales = tuple(AnnotationScale(scale.aspect, scale.low, scale.high) for scale in body.scales)
            question = TaskQuestion(
                body.question, scales, tuple(dict.fromkeys(body.labels)), body.reason, body.by_turns
            )
            drawn: dict[str, Any] = {"limit": body.limit, "seed": body.seed, "fields": fields}
            tasks = tasks_of(here, question, selection, alone=not body.pools, **drawn)
            created = create_task_queue(here, body.name, tasks, question, **shared)
        elif body.comparison_ids is not None:
            created = create_queue(here, body.name, _items(body.comparison_ids[: body.limit], body), **shared)
        else:
            about: dict[str, Any] = {"reason": body.reason, "principles": body.principles}
            items = items_of(here, selection, limit=body.limit, seed=body.seed, fields=fields, **about)
            created = create_queue(here, body.name, items, **shared)
        run.metrics.update(items=created.items, checks=created.checks)
    note_change(request, created.name, items=created.items, run=run.id)
    return queue_now(service, live, created.name, person)


@router.post("/api/queues/{queue}/items")
def add_queue_items(
    queue: QueueName, body: MoreItems, person: Curator, service: ServiceNow, live: LiveNow
) -> ItemsAdded:
    """Add comparisons to an open queue."""
    items = _items(body.comparison_ids, body)
    added = add_items(service.workspace, queue, items, None)
    live.forget(queue)
    return ItemsAdded(added=added)


@router.post("/api/queues/{queue}/close")
def close_queue_by_name(queue: QueueName, person: Curator, service: ServiceNow, live: LiveNow) -> QueueReply:
    """Hand out no more items. What was voted stays."""
    close_queue(service.workspace, queue)
    return queue_now(service, live, queue, person)


@router.post("/api/queues/{queue}/reopen")
def reopen_queue_by_name(queue: QueueName, person: Curator, service: ServiceNow, live: LiveNow) -> QueueReply:
    """Hand out items of a closed queue again."""
    reopen_queue(service.workspace, queue)
    return queue_now(service, live, queue, person)


@router.put("/api/queues/{queue}/project")
def move_queue_by_name(
    queue: QueueName, body: QueueProject, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> QueueReply:
    """Move the queue into another project: from now on its members see the queue, and others no more."""
    require_project(service, person, body.project)
    move_queue(service.workspace, queue, body.project)
    note_change(request, queue, project=body.project)
    return queue_now(service, live, queue, person)


@router.get("/api/queues/{queue}/report")
def get_queue_report(queue: QueueName, person: Curator, service: ServiceNow, live: LiveNow) -> QueueReport:
    """Everybody's gold checks, agreement with the others, speed, sides, ties and skips, and what to look at."""
    with open_ledger(service.workspace) as ledger:
        name = find_queue(ledger, queue).name
        votes, principles = queue_votes(ledger, name), principle_agreement(ledger, name)
        labels = label_agreement(ledger, name, resamples=RESAMPLES)
    people = annotator_quality(votes)
    return QueueReport(annotators=people, agreement=live.agreement(queue), principles=principles, labels=labels)


@router.get("/api/queues/{queue}/resolution")
def preview_queue_resolution(
    queue: QueueName,
    person: Curator,
    service: ServiceNow,
    least_votes: Annotated[int | None, Query(ge=1, le=1_000)] = None,
) -> ResolutionReport:
    """What the votes come to now; decides nothing."""
    return resolve_queue(service.workspace, queue, None, least_votes=least_votes, dry_run=True)


@router.post("/api/queues/{queue}/resolution")
def resolve_queue_by_name(
    queue: QueueName, body: Resolve, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> ResolutionReport:
    """Turn majorities and adjudications into decisions; again, it writes only what has changed."""
    settings = {"queue": queue, "least_votes": body.least_votes, "person": person.name}
    with start_run(service.workspace, "queue-resolve", settings) as run:
        report = resolve_queue(service.workspace, queue, run.id, least_votes=body.least_votes)
        run.metrics.update(asdict(report))
    note_change(request, queue, new=report.new, run=run.id)
    live.forget(queue)
    return report


def _items(comparisons: list[str], body: NewQueue | MoreItems) -> list[QueueItem]:
    principles = principle_statements(body.principles)
    return [QueueItem(comparison, reason=body.reason, principles=principles) for comparison in comparisons]


def queue_now(service: WebService, live: LiveFigures, queue: str, person: Person) -> QueueReply:
    """As it is after a change."""
    live.forget(queue)
    return _reply(service, live.state(queue), person)


def _reply(service: WebService, state: QueueState, person: Person) -> QueueReply:
    queue: Queue = state.queue
    progress = asdict(state.progress)
    return QueueReply(
        name=queue.name,
        title=queue.title,
        description=queue.options.description,
        question=state.question,
        project=queue.project,
        overlap=queue.overlap,
        closed=queue.closed,
        paused=queue.paused,
        assigned=is_assigned(service, person, queue.project, queue.people, queue.groups),
        guideline=queue.guideline,
        share=share_done(state.progress),
        mine=state.progress.annotators.get(person.name, 0),
        people=len(state.progress.annotators),
        voting=state.voting,
        counts=QueueCounts(checks=queue.checks, **progress) if may(person, "curate") else None,
    )
