"""Routes by which comparisons are chosen by what they are like: the nearest to one, and the fields to choose by.

Leaves out: making the vectors (`assay data embed`), queues of what is found (`assay_web.annotate.queue_routes`).
"""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from assay.data.snapshots import POOLS, Selection
from assay.store.database import registered
from assay_pipelines.annotation.item_filters import known_fields
from assay_pipelines.embedding.similar import similar_comparisons, vector_spaces
from assay_web.access.audited_route import AuditedRoute
from assay_web.access.guard import Viewer
from assay_web.service import ServiceNow

router = APIRouter(tags=["comparisons"], route_class=AuditedRoute)


class SimilarRow(BaseModel):
    """`similarity`: cosine. `prompt`: the beginning of its last turn."""

    comparison_id: str
    similarity: float
    prompt: str
    pool: str


class SimilarReply(BaseModel):
    """Nearest first. `space`: whose vectors; null: there are none yet. `missing`: comparisons of the pools without one,
    which are not searched. `embedded`: whether this comparison has one."""

    rows: list[SimilarRow]
    space: str | None
    searched: int
    missing: int
    embedded: bool


class FieldValueCount(BaseModel):
    """`count`: in a sample of the store."""

    value: str
    count: int


class ComparisonField(BaseModel):
    """Something that comparisons can be chosen by. `attribute`: of `assay attributes`; else a field of the source's."""

    name: str
    attribute: bool
    values: list[FieldValueCount]


@router.get("/api/comparisons/{comparison_id}/similar")
def get_similar_comparisons(
    comparison_id: str,
    person: Viewer,
    service: ServiceNow,
    most: Annotated[int, Query(ge=1, le=1_000)] = 20,
    pool: Annotated[list[str] | None, Query(max_length=10)] = None,
) -> SimilarReply:
    """The comparisons nearest to one, by their vectors."""
    here = service.workspace
    spaces = vector_spaces(here)
    if not spaces:
        return SimilarReply(rows=[], space=None, searched=0, missing=0, embedded=False)
    with service.store() as db:
        embedded = db.execute(
            "SELECT 1 FROM embeddings WHERE ref = ? AND encoder = ?", [comparison_id, spaces[0][0]]
        ).fetchone()
    if embedded is None:
        return SimilarReply(rows=[], space=spaces[0][0], searched=spaces[0][1], missing=0, embedded=False)
    near = similar_comparisons(here, comparison_id, Selection(tuple(pool or POOLS)), most=most, space=spaces[0][0])
    import pyarrow as pa

    ids = [row.comparison_id for row in near.rows]
    with (
        service.store() as db,
        registered(db, "near", pa.table({"comparison_id": pa.array(ids, pa.string())})),
    ):
        texts = {
            comparison: (prompt, pool_name)
            for comparison, prompt, pool_name in db.execute(
                """SELECT p.comparison_id, left(list_last(q.messages).content, 200), p.pool
                   FROM pools p SEMI JOIN near USING (comparison_id) JOIN prompts q USING (prompt_id)"""
            ).fetchall()
        }
    rows = [
        SimilarRow(
            comparison_id=row.comparison_id,
            similarity=row.similarity,
            prompt=texts[row.comparison_id][0],
            pool=texts[row.comparison_id][1],
        )
        for row in near.rows
        if row.comparison_id in texts
    ]
    return SimilarReply(rows=rows, space=near.space, searched=near.searched, missing=near.missing, embedded=True)


@router.get("/api/comparison-fields")
def get_comparison_fields(person: Viewer, service: ServiceNow) -> list[ComparisonField]:
    """Attributes and sources' own fields, with their most frequent values."""
    with service.store() as db:
        fields = known_fields(db)
    return [
        ComparisonField(
            name=field.name,
            attribute=field.attribute,
            values=[FieldValueCount(value=value, count=number) for value, number in field.values],
        )
        for field in fields
    ]
