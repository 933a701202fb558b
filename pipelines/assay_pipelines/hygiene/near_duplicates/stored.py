"""Near-duplicate searches and their clusters as the store has them, in pages.

Leaves out: finding them (`search`).
"""

import json
from dataclasses import dataclass

from assay.store.database import Connection
from assay_pipelines.curation.shown_pairs import ShownPair, shown_pairs

MOST_MEMBERS = 20  #: shown of a cluster


@dataclass(frozen=True, slots=True)
class DuplicateSearch:
    """One finished search. `over`: pair or prompt. `extra`: members beside those kept; `opposite`: of these, with the
    label opposite to the kept one's. `discarded`: by this search. `at`: seconds since the epoch."""

    run_id: str
    over: str
    threshold: float
    shingle: int
    items: int
    clusters: int
    members: int
    extra: int
    opposite: int
    discarded: int
    at: float


@dataclass(frozen=True, slots=True)
class DuplicateMember:
    """`kept_id`: the nearest item that is kept, null for one that is kept itself. `crossed`: A here is like B there.
    `pair`: the comparison; of a prompt, one that has it, null where none has."""

    item_id: str
    kept_id: str | None
    similarity: float | None
    crossed: bool | None
    pair: ShownPair | None


@dataclass(frozen=True)
class DuplicateCluster:
    """`members`: the kept ones first, then the nearest; MOST_MEMBERS of `size`."""

    cluster_id: str
    size: int
    lowest: float | None
    members: list[DuplicateMember]


_SEARCHES = """
    SELECT run_id, config::VARCHAR, metrics::VARCHAR, epoch(started_at) FROM runs
    WHERE kind = 'near-dup' AND status = 'done' ORDER BY started_at DESC, run_id DESC"""
_CLUSTERS = """
    SELECT cluster_id, count(*), min(similarity), count(*) OVER () FROM near_duplicates WHERE run_id = $run
    GROUP BY cluster_id ORDER BY 2 DESC, 3, 1 LIMIT $limit OFFSET $offset"""
_MEMBERS = f"""
    SELECT cluster_id, item_id, kept_id, similarity, crossed FROM near_duplicates
    WHERE run_id = $run AND list_contains($clusters, cluster_id)
    QUALIFY row_number() OVER (
        PARTITION BY cluster_id ORDER BY kept_id IS NOT NULL, similarity DESC, item_id) <= {MOST_MEMBERS}
    ORDER BY cluster_id, kept_id IS NOT NULL, similarity DESC, item_id"""


def duplicate_searches(db: Connection) -> list[DuplicateSearch]:
    """The newest first."""
    searches = []
    for run, config, metrics, at in db.execute(_SEARCHES).fetchall():
        settings, measured = json.loads(config), json.loads(metrics)
        counts = {name: measured[name] for name in ("items", "clusters", "members", "extra", "opposite", "discarded")}
        searches.append(
            DuplicateSearch(
                run_id=run,
                over=settings["over"],
                threshold=settings["threshold"],
                shingle=settings["shingle"],
                **counts,
                at=at,
            )
        )
    return searches


def duplicate_clusters(
    db: Connection, run_id: str, *, limit: int, offset: int = 0
) -> tuple[list[DuplicateCluster], int]:
    """A page of a search's clusters, the largest first, then the least similar, and their total number."""
    rows = db.execute(_CLUSTERS, {"run": run_id, "limit": limit, "offset": offset}).fetchall()
    members = db.execute(_MEMBERS, {"run": run_id, "clusters": [row[0] for row in rows]}).fetchall()
    items = [row[1] for row in members]
    of_prompt = dict(
        db.execute(
            "SELECT prompt_id, min(comparison_id) FROM comparisons WHERE list_contains($items, prompt_id) GROUP BY 1",
            {"items": items},
        ).fetchall()
    )
    pairs = shown_pairs(db, [of_prompt.get(item, item) for item in items])
    grouped: dict[str, list[DuplicateMember]] = {}
    for cluster, item, kept_id, similarity, crossed in members:
        member = DuplicateMember(item, kept_id, similarity, crossed, pairs.get(of_prompt.get(item, item)))
        grouped.setdefault(cluster, []).append(member)
    clusters = [DuplicateCluster(cluster, size, lowest, grouped.get(cluster, [])) for cluster, size, lowest, _ in rows]
    return clusters, int(rows[0][3]) if rows else 0
