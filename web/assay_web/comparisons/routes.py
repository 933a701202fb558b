"""Routes of the data browser: pages of comparisons by filter, how many there are, one whole, the lineage of anything.

Each takes one short unit of the store; an unfinished search replies with a cursor to continue from. Leaves out: the
queries (`assay.browsing`).
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from assay.browsing.comparison import ComparisonRecord, comparison
from assay.browsing.facets import ComparisonFacets, facets
from assay.browsing.filters import Conflict, Filter, Label
from assay.browsing.page import ComparisonRow, count, first_rows
from assay.browsing.walk import Cursor, Order
from assay.runs.lineage import Direction, LineageNode, lineage
from assay_web.access.audited_route import AuditedRoute
from assay_web.access.guard import Viewer
from assay_web.service import ServiceNow

router = APIRouter(tags=["comparisons"], route_class=AuditedRoute)

COUNTING_S = 0.2  #: others wait for the store meanwhile
Values = Annotated[list[str] | None, Query(max_length=100)]


def filter_of(
    pool: Values = None,
    source: Values = None,
    category: Values = None,
    language: Values = None,
    label: Annotated[list[Label] | None, Query(max_length=4)] = None,
    conflict: Conflict | None = None,
    scored_by: str | None = None,
    reward_low: float | None = None,
    reward_high: float | None = None,
    text: Annotated[str, Query(max_length=500)] = "",
    id: Annotated[str, Query(max_length=500)] = "",
) -> Filter:
    """The filter of a query string. Raises BadInputError."""
    return Filter(
        pools=tuple(pool or ()),
        sources=tuple(source or ()),
        categories=tuple(category or ()),
        languages=tuple(language or ()),
        labels=tuple(label or ()),
        conflict=conflict,
        scored_by=scored_by or None,
        reward_low=reward_low,
        reward_high=reward_high,
        text=text.strip(),
        id=id.strip(),
    )


FilterNow = Annotated[Filter, Depends(filter_of)]
After = Annotated[str | None, Query(max_length=40)]


@dataclass(frozen=True)
class ComparisonList:
    """`after`: give it back for the next page; null at the end. Where matches are rare a page may have few rows, or
    none, before the end: `examined` of `total` comparisons have been looked at."""

    rows: list[ComparisonRow]
    after: str | None
    examined: int
    total: int


@dataclass(frozen=True)
class ComparisonCount:
    """`matches` among the comparisons that this call looked at; sum them until `after` is null."""

    matches: int
    after: str | None
    examined: int
    total: int


@router.get("/api/comparisons")
def list_comparisons(
    person: Viewer,
    service: ServiceNow,
    filters: FilterNow,
    after: After = None,
    order: Order = "oldest",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ComparisonList:
    """The comparisons that match, in the order of import."""
    cursor = Cursor.parse(after) if after is not None else None
    with service.store() as db:
        page = first_rows(db, filters, after=cursor, order=order, limit=limit)
    return ComparisonList(page.rows, _cursor_text(page.after), page.examined, page.total)


@router.get("/api/comparisons/count")
def count_comparisons(person: Viewer, service: ServiceNow, filters: FilterNow, after: After = None) -> ComparisonCount:
    """A part of their number."""
    cursor = Cursor.parse(after) if after is not None else None
    with service.store() as db:
        part = count(db, filters, after=cursor, seconds=COUNTING_S)
    return ComparisonCount(part.matches, _cursor_text(part.after), part.examined, part.total)


@router.get("/api/comparisons/facets")
def get_comparison_facets(person: Viewer, service: ServiceNow) -> ComparisonFacets:
    """What comparisons can be filtered by."""
    with service.store() as db:
        return facets(db)


@router.get("/api/comparisons/{comparison_id}")
def get_comparison(person: Viewer, service: ServiceNow, comparison_id: str) -> ComparisonRecord:
    """All that is known of one comparison."""
    with service.store() as db:
        return comparison(db, comparison_id)


@router.get("/api/lineage/{name:path}")
def get_lineage(
    person: Viewer,
    service: ServiceNow,
    name: str,
    direction: Direction = "down",
    depth: Annotated[int, Query(ge=1, le=6)] = 1,
    width: Annotated[int, Query(ge=1, le=200)] = 20,
) -> LineageNode:
    """What a thing came from (up) or led to (down), `depth` steps far. `name`: an id, a snapshot's or artifact's name,
    or a file."""
    return lineage(service.workspace, name, direction, depth=depth, width=width)


def _cursor_text(cursor: Cursor | None) -> str | None:
    return None if cursor is None else str(cursor)
