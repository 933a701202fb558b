"""The comparisons nearest to one, by the vectors that the store has of them.

Leaves out: making vectors (`stored`), retrieval for curation (`retrieval`), the search itself (`index`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.compute.scratch_store import scratch
from assay.data.snapshots import Selection
from assay.errors import NotFoundError
from assay.workspace import Workspace
from assay_pipelines.embedding.index import open_index
from assay_pipelines.embedding.stored import StoredVectors, load_vectors


@dataclass(frozen=True, slots=True)
class SimilarComparison:
    """`similarity`: cosine of the two vectors, -1 to 1."""

    comparison_id: str
    similarity: float


@dataclass(frozen=True)
class SimilarComparisons:
    """Nearest first. `searched`: comparisons with a vector; `missing`: of the selection, without one. `space`: which
    vectors."""

    rows: tuple[SimilarComparison, ...]
    space: str
    searched: int
    missing: int


def vector_spaces(workspace: Workspace) -> list[tuple[str, int]]:
    """The vectors that the store has of comparisons, by encoder, and how many; most first."""
    with workspace.store.unit() as db:
        return db.execute(
            """SELECT encoder, count(*) FROM embeddings SEMI JOIN comparisons ON comparison_id = ref
               GROUP BY encoder ORDER BY 2 DESC, 1"""
        ).fetchall()


def similar_comparisons(
    workspace: Workspace, comparison: str, which: Selection | Sequence[str], *, most: int, space: str | None = None
) -> SimilarComparisons:
    """`space`: default the one with the most vectors. Raises NotFoundError where there are none, or none of this
    comparison."""
    spaces = vector_spaces(workspace)
    if not spaces:
        raise NotFoundError("no comparison has been embedded yet")
    space = space or spaces[0][0]
    ids, query = load_vectors(workspace, space, [comparison])
    if not ids:
        raise NotFoundError("this comparison has not been embedded yet: embed what is new")
    vectors = StoredVectors(workspace, space, which)
    with scratch(workspace) as temporary:
        (near,) = open_index(vectors, None, temporary.folder).nearest(query, most, exclude={comparison})
    return SimilarComparisons(tuple(SimilarComparison(*row) for row in near), space, len(vectors.ids), vectors.missing)
