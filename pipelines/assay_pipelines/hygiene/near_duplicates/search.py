"""The near-duplicate search: sketch, pair, verify, cluster, store; and discarding its clusters.

Sketches and shingle sets are computed of shards (`assay.compute`), here or on other machines; what joins them is here.
Clusters are found by union-find. In the order of preference, an item is kept unless it is similar to one already kept;
gold always is. So every item removed is itself similar to an item that stays, however long the chain of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Le

from assay.compute.executor import Executor
from assay.compute.job import JobSpec, hash_of
from assay.compute.local import LocalExecutor
from assay.compute.scratch_store import scratch
from assay.compute.stage import in_order, map_stage, open_stage
from assay.runs.progress_file import Counting, noted
from assay.settings import CheckedSettings, Help
from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.hygiene.near_duplicates.documents import Documents, Over, documents
from assay_pipelines.hygiene.near_duplicates.jobs import Shingling, Sketching
from assay_pipelines.hygiene.near_duplicates.similarity import ShingleSets
from assay_pipelines.hygiene.near_duplicates.sketches import BandFiles, CollidingPairs, banding, candidates

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


RULE = "near_duplicate"
_WRITE = 50_000
# As in the view `pools`, for the members only: the label decided, else that on which the sources agree.
_OPPOSITE = """
    WITH found AS (SELECT * FROM near_duplicates WHERE run_id = $run AND kept_id IS NOT NULL),
    wanted AS (SELECT item_id AS id FROM found UNION SELECT kept_id FROM found),
    decided AS (SELECT comparison_id AS id, arg_max_null(label, "position") AS label FROM decisions
                WHERE comparison_id IN (SELECT id FROM wanted) GROUP BY comparison_id),
    said AS (SELECT comparison_id AS id, if(min(answer) = max(answer), min(answer), NULL) AS label
             FROM judgments JOIN annotators USING (annotator_id)
             WHERE kind = 'source' AND answer <> 'skip' AND comparison_id IN (SELECT id FROM wanted)
             GROUP BY comparison_id),
    labels AS (SELECT w.id, if(d.id IS NULL, s.label, d.label) AS label
               FROM wanted w LEFT JOIN decided d USING (id) LEFT JOIN said s USING (id))
    SELECT count(*) FROM found n JOIN labels i ON i.id = n.item_id JOIN labels k ON k.id = n.kept_id
    WHERE i.label IN ('A', 'B') AND k.label IN ('A', 'B') AND (i.label = k.label) = n.crossed"""


@dataclass(frozen=True)
class NearDuplicateConfig(CheckedSettings):
    """`over`: whether comparisons are compared, or prompts alone."""

    threshold: Annotated[float, Gt(0), Le(1), Help("Least Jaccard similarity of every part.")] = 0.8
    shingle: Annotated[int, Ge(1), Le(50), Help("Consecutive words of a shingle.")] = 3
    over: Annotated[Over, Help("pair (prompt and both responses), or prompt alone.")] = "pair"
    seed: Annotated[int, Help("Of the sketches.")] = 42


@dataclass
class NearDuplicateReport:
    """`items` were read, `members` of them are in `clusters`, `extra` of those are not kept. `opposite`: of the extra
    comparisons, those whose label contradicts that of the kept one. `large_groups`: see `sketches.CollidingPairs`."""

    items: int
    candidates: int = 0
    clusters: int = 0
    members: int = 0
    extra: int = 0
    opposite: int = 0
    large_groups: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


def find_near_duplicates(
    workspace: Workspace,
    config: NearDuplicateConfig,
    run_id: str,
    *,
    executor: Executor | None = None,
    counting: Counting = noted,
) -> NearDuplicateReport:
    """Write the clusters to the table near_duplicates under `run_id`. `counting`: progress over the items
    sketched, then over those compared. An interrupted search of the same documents resumes where it stopped."""
    import numpy as np
    import pyarrow.parquet as pq

    executor = executor or LocalExecutor()
    with scratch(workspace) as scratch_db:
        docs = documents(workspace, scratch_db, config.over)
        report = NearDuplicateReport(docs.items)
        preference = docs.preference()
        bands, rows = banding(config.threshold)
        arguments = {"parts": docs.parts, "shingle": config.shingle, "bands": bands, "rows": rows, "seed": config.seed}
        spec = JobSpec(f"{Sketching.__module__}:{Sketching.__name__}", arguments)
        with (
            counting("sketching", docs.items, unit=f"{config.over}s") as advance,
            open_stage(workspace, "near-dup", spec, {"documents": docs.fingerprint}, docs.shards) as stage,
        ):
            files = BandFiles(scratch_db.folder, bands)
            for unit in in_order(map_stage(stage, executor, advance=advance)):
                keys = pq.read_table(unit.result).column("keys").combine_chunks()
                files.add(keys.flatten().to_numpy().reshape(-1, bands))
            pairs = candidates(files, preference) if docs.items else CollidingPairs(preference, preference, 0)
            similarity, crossed = _verify(docs, config, pairs, executor, counting)
        report.candidates, report.large_groups = len(pairs.first), pairs.large_groups
        near = similarity >= config.threshold
        rank = np.empty(docs.items, np.int64)
        rank[preference] = np.arange(docs.items)
        clusters = cluster(
            pairs.first[near], pairs.second[near], similarity[near], crossed[near], rank=rank, gold=docs.gold()
        )
        report.members = len(clusters.item)
        report.clusters = len(np.unique(clusters.cluster))
        report.extra = int(np.sum(clusters.nearest_kept >= 0))
        _write(workspace, docs, clusters, run_id)
    _describe(workspace, report, config, run_id)
    return report


def discard_near_duplicates(workspace: Workspace, config: NearDuplicateConfig, run_id: str) -> int:
    """Discard the comparisons that the run did not keep, with the nearest kept one and the similarity as the reason.

    Over prompts: every comparison of a prompt that is not kept. Gold and restored comparisons stay.
    """
    column, noun = ("comparison_id", "") if config.over == "pair" else ("prompt_id", "the prompt is a ")
    basis = "[{'relation': 'duplicate of', 'ref': n.kept_id}]"
    reason = f"{noun}near-duplicate of {{}} (Jaccard similarity {{:.3f}} of {config.shingle}-word shingles)"
    with workspace.store.unit() as db:
        row = db.execute(
            f"""INSERT INTO decisions (comparison_id, pool, rule, reason, basis, run_id)
                SELECT c.comparison_id, 'discarded', $rule,
                       format('{reason}', n.kept_id, n.similarity), {basis}, $run
                FROM near_duplicates n JOIN comparisons c ON c.{column} = n.item_id
                LEFT JOIN (SELECT comparison_id, arg_max(pool, "position") AS pool,
                                  bool_or(rule = $rule) AS decided
                           FROM decisions GROUP BY comparison_id) d ON d.comparison_id = c.comparison_id
                WHERE n.run_id = $run AND n.kept_id IS NOT NULL
                  AND coalesce(d.pool, '') NOT IN ('gold', 'discarded') AND NOT coalesce(d.decided, false)""",
            {"rule": RULE, "run": run_id},
        ).fetchone()
    return int(row[0]) if row else 0


def _verify(
    docs: Documents, config: NearDuplicateConfig, pairs: CollidingPairs, executor: Executor, counting: Counting
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """(similarity, crossed) of the pairs."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    items = np.unique(np.concatenate([pairs.first, pairs.second]))
    sets = ShingleSets(docs.scratch.folder / "shingles.u64", docs.parts)
    if len(items):
        docs.scratch.append("candidate_items", pa.table({"item": items}))
        only = "item IN (SELECT item FROM candidate_items)"
        spec = JobSpec(f"{Shingling.__module__}:{Shingling.__name__}", {"parts": docs.parts, "shingle": config.shingle})
        question = {"documents": docs.fingerprint, "items": hash_of(items.tobytes())}
        with (
            counting("comparing", len(items), unit=f"{config.over}s") as advance,
            open_stage(docs.workspace, "near-dup-sets", spec, question, lambda: docs.shards(only=only)) as stage,
        ):
            for unit in in_order(map_stage(stage, executor, advance=advance)):
                lists = pq.read_table(unit.result).column("shingles").combine_chunks()
                sets.add(np.diff(lists.offsets.to_numpy()), lists.values.to_numpy())
    return sets.open(items).similarity(pairs.first, pairs.second)


def _write(workspace: Workspace, docs: Documents, clusters: Clusters, run_id: str) -> None:
    import numpy as np
    import pyarrow as pa

    for low in range(0, len(clusters.item), _WRITE):
        part = slice(low, low + _WRITE)
        removed = clusters.nearest_kept[part] >= 0
        retained = docs.ids(np.where(removed, clusters.nearest_kept[part], clusters.item[part]))
        rows = pa.table(
            {
                "cluster_id": docs.ids(clusters.cluster[part]),
                "item_id": docs.ids(clusters.item[part]),
                "kept_id": pa.compute.if_else(pa.array(removed), retained, None),
                "similarity": pa.array(clusters.similarity[part], mask=~removed),
                "crossed": pa.array(clusters.crossed[part], mask=~removed),
            }
        )
        with workspace.store.unit() as db, registered(db, "incoming_members", rows):
            db.execute(
                """INSERT INTO near_duplicates (run_id, cluster_id, item_id, kept_id, similarity, crossed)
                   SELECT ?, cluster_id, item_id, kept_id, similarity, crossed FROM incoming_members""",
                [run_id],
            )


def _describe(workspace: Workspace, report: NearDuplicateReport, config: NearDuplicateConfig, run_id: str) -> None:
    """Count contradicting labels and fetch examples, the least similar first."""
    names = ("item_id", "kept_id", "similarity")
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""SELECT {", ".join(names)} FROM near_duplicates WHERE run_id = ? AND kept_id IS NOT NULL
                ORDER BY similarity, item_id LIMIT 5""",
            [run_id],
        ).fetchall()
        report.examples = [dict(zip(names, row, strict=True)) for row in rows]
        if config.over == "pair" and report.extra:
            row = db.execute(
                _OPPOSITE,
                {"run": run_id},
            ).fetchone()
            report.opposite = int(row[0]) if row else 0


@dataclass(frozen=True)
class Clusters:
    """Arrays of one entry a member: its item, its cluster's most preferred item, the kept item that it is nearest to
    (-1 for those kept), the similarity to that (NaN for those kept), whether the responses match crosswise."""

    item: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]
    nearest_kept: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float64]
    crossed: npt.NDArray[np.bool_]


def cluster(
    first: npt.NDArray[np.int64],
    second: npt.NDArray[np.int64],
    similarity: npt.NDArray[np.float64],
    crossed: npt.NDArray[np.bool_],
    *,
    rank: npt.NDArray[np.int64],
    gold: npt.NDArray[np.bool_],
) -> Clusters:
    """`rank`: each item's unique rank in the order of preference; `gold`: whether it is always kept."""
    import numpy as np

    items = np.unique(np.concatenate([first, second]))
    first_index, second_index = np.searchsorted(items, first), np.searchsorted(items, second)
    order = np.argsort(rank[items])
    preference = np.empty(len(items), np.int64)  # 0 = the most preferred member
    preference[order] = np.arange(len(items))
    components = connected(len(items), preference[first_index], preference[second_index])
    retained = keep(len(items), preference[first_index], preference[second_index], gold[items[order]])
    nearest = np.full(len(items), -1, np.int64)
    nearest_similarity = np.full(len(items), np.nan)
    cross = np.zeros(len(items), bool)
    x, y = (
        np.concatenate([preference[first_index], preference[second_index]]),
        np.concatenate([preference[second_index], preference[first_index]]),
    )
    both, swap = np.concatenate([similarity, similarity]), np.concatenate([crossed, crossed])
    to_kept = np.flatnonzero(~retained[x] & retained[y])
    best = to_kept[np.lexsort((-y[to_kept], both[to_kept]))]  # the last one written is the nearest, then preferred
    nearest[x[best]], nearest_similarity[x[best]], cross[x[best]] = y[best], both[best], swap[best]
    ordered = items[order]
    return Clusters(
        ordered, ordered[components], np.where(nearest >= 0, ordered[nearest], -1), nearest_similarity, cross
    )


def connected(nodes: int, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The lowest node of each node's component."""
    import numpy as np

    label = np.arange(nodes)
    while True:
        one, other = label[first], label[second]
        if np.array_equal(one, other):
            return label
        np.minimum.at(label, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(label, label[label]):
            label = label[label]


def keep(
    nodes: int, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], always: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Which nodes are kept, lower ones first: the result of a sequential pass, computed in rounds."""
    import numpy as np

    retained = always.copy()
    undecided = ~always
    while undecided.any():
        for x, y in ((first, second), (second, first)):
            undecided[x[retained[y]]] = False
        active = undecided[first] & undecided[second]
        left_on, right_on = first[active], second[active]
        lowest = np.where(undecided, np.arange(nodes), nodes)
        np.minimum.at(lowest, left_on, right_on)
        np.minimum.at(lowest, right_on, left_on)
        winners = undecided & (lowest >= np.arange(nodes))
        retained |= winners
        undecided &= ~winners
    return retained
