"""Routes of many items of a queue at once: a page of them, removing, returning, assigning, deciding, sending to
another.

Leaves out: the queue as a whole (`queue_routes`, `edit_routes`), annotation sessions (`session_routes`).
"""

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from assay.runs.record import start_run
from assay_pipelines.annotation.item_table import ItemRow, ItemState, queue_items, send_items
from assay_pipelines.annotation.queue_edits import change_items, item_ids
from assay_pipelines.annotation.resolution import ResolutionReport, resolve_queue
from assay_pipelines.annotation.service import queue_row
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator
from assay_web.access.queue_access import QueueName, require_visible
from assay_web.annotate.live import LiveNow
from assay_web.annotate.session_routes import MOST_ITEMS
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow

router = APIRouter(tags=["queues"], route_class=AuditedRoute)

ItemNumbers = Annotated[list[Annotated[int, Field(ge=1, le=MOST_ITEMS)]], Field(min_length=1, max_length=10_000)]


class ItemPage(BaseModel):
    """`total`: of all that match."""

    rows: list[ItemRow]
    total: int


class ItemsChange(RequestBody):
    """`items`: by number. removed: nobody is asked any more, votes stay; returned: asked again; assigned: to `people`
    alone (none: to everybody)."""

    items: ItemNumbers
    change: Literal["removed", "returned", "assigned"]
    people: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field([], max_length=100)


class ItemsChanged(BaseModel):
    """`items`: how many."""

    items: int


class ItemsToDecide(RequestBody):
    """`least_votes`: that a majority needs; null for what the queue asks for."""

    items: ItemNumbers
    least_votes: Annotated[int, Field(ge=1, le=1_000)] | None = None


class ItemsToSend(RequestBody):
    """`to`: another queue of the curator's. `remove`: ask about them there alone."""

    items: ItemNumbers
    to: Annotated[str, Field(max_length=100)]
    remove: bool = False


@router.get("/api/queues/{queue}/items")
def get_queue_items(
    queue: QueueName,
    person: Curator,
    service: ServiceNow,
    state: ItemState | None = None,
    who: Annotated[str, Query(max_length=100, description="Voted on it, or it is assigned to them.")] = "",
    text: Annotated[str, Query(max_length=500, description="Occurs in its texts.")] = "",
    start: Annotated[int, Query(ge=0, le=MOST_ITEMS)] = 0,
    most: Annotated[int, Query(ge=1, le=500)] = 100,
) -> ItemPage:
    """Items in the order of their numbers, with their votes, who alone is asked, who has them, and open notes."""
    rows, total = queue_items(
        service.annotation, queue, state=state, person=who, text=text.strip(), start=start, most=most
    )
    return ItemPage(rows=rows, total=total)


@router.post("/api/queues/{queue}/items/change")
def change_queue_items(
    queue: QueueName, body: ItemsChange, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> ItemsChanged:
    """Remove items from the queue, return them, or assign them to some people."""
    change: Literal["items_removed", "items_returned", "items_assigned"] = f"items_{body.change}"  # type: ignore[assignment]
    ids = change_items(service.annotation, queue, change, body.items, person.name, people=body.people)
    note_change(request, queue, change=body.change, items=len(ids), people=body.people)
    live.forget(queue)
    return ItemsChanged(items=len(ids))


@router.post("/api/queues/{queue}/items/resolution")
def resolve_queue_items(
    queue: QueueName, body: ItemsToDecide, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> ResolutionReport:
    """Decide these by their votes and adjudications, and no others."""
    with service.annotation.ledger.reading() as db:
        ids = item_ids(db, queue_row(db, queue)["name"], body.items)
    settings = {"queue": queue, "least_votes": body.least_votes, "items": len(ids), "person": person.name}
    with start_run(service.workspace, "queue-resolve", settings) as run:
        report = resolve_queue(service.workspace, queue, run.id, least_votes=body.least_votes, only=set(ids))
        run.metrics.update(asdict(report))
    note_change(request, queue, new=report.new, items=len(ids), run=run.id)
    live.forget(queue)
    return report


@router.post("/api/queues/{queue}/items/sending")
def send_queue_items(
    queue: QueueName, body: ItemsToSend, person: Curator, service: ServiceNow, live: LiveNow, request: Request
) -> ItemsChanged:
    """Ask about these in another queue too, as they are asked here."""
    to = require_visible(service, person, body.to)
    added = send_items(service.workspace, service.annotation, queue, body.items, to)
    if body.remove:
        change_items(service.annotation, queue, "items_removed", body.items, person.name)
    note_change(request, queue, to=to, items=len(body.items), new=added, removed=body.remove)
    live.forget(queue)
    live.forget(to)
    return ItemsChanged(items=added)
