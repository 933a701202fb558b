"""Error-driven adaptive retrieval (Skywork-Reward-V2, stage 1, step 2): more neighbours for gold pairs got wrong."""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from fractions import Fraction

from assay.compute.scratch_store import scratch
from assay.data.snapshots import Selection
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.embedding.index import IndexConfig, open_index
from assay_pipelines.embedding.stored import StoredVectors, load_vectors

K_MAX = 8


def adaptive_k(p: float, k_max: int = K_MAX) -> int:
    """k_max if p <= 0.5, else ceil(k_max (1 - p)); p: the model's probability of the gold label.

    Computed on the decimal digits of p: in binary, 10 * (1 - 0.7) is above 3 and would give 4.
    """
    if not 0 <= p <= 1:  # NaN too
        raise BadInputError(f"a probability is 0 to 1, not {p}", field="p")
    if k_max < 0:
        raise BadInputError("must not be negative", field="k_max")
    return k_max if p <= 0.5 else math.ceil(k_max * (1 - Fraction(str(float(p)))))


@dataclass(frozen=True, slots=True)
class GoldItem:
    """A gold comparison and the probability that the reward model gives its gold label."""

    comparison_id: str
    p: float


@dataclass(frozen=True, slots=True)
class Reason:
    """The gold item that a candidate was retrieved for, and their similarity."""

    gold_id: str
    p: float
    similarity: float


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A candidate. `weight`: the largest (1 - p) * similarity of its reasons: candidates near large errors come first.
    `reasons`: heaviest first."""

    comparison_id: str
    weight: float
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Retrieval:
    """`requested`: neighbours requested, over all gold items; `candidates`: the different ones found, best first.
    `without_vector`: ids of gold items that could not be looked around; `pool`: vectors searched, `pool_missing`: pool
    comparisons that have none."""

    candidates: tuple[Retrieved, ...]
    requested: int
    without_vector: tuple[str, ...]
    pool: int
    pool_missing: int


def retrieve_around(
    workspace: Workspace,
    space: str,
    gold: Sequence[GoldItem],
    pool: Selection | Sequence[str],
    *,
    k_max: int = K_MAX,
    exclude: Set[str] = frozenset(),
    config: IndexConfig | None = None,
) -> Retrieval:
    """The adaptive k nearest of every gold item in the pool; gold items themselves are never candidates.

    `space`: of `EmbedReport`. Embed the gold items and the pool first; comparisons without a vector are counted.
    """
    vectors = StoredVectors(workspace, space, pool)
    by_id = {gold_item.comparison_id: gold_item for gold_item in gold}
    ids, queries = load_vectors(workspace, space, list(by_id))
    counts = [adaptive_k(by_id[name].p, k_max) for name in ids]
    reasons: dict[str, list[Reason]] = {}
    if vectors.ids and ids:
        with scratch(workspace) as temporary:
            index = open_index(vectors, config, temporary.folder)
            neighbours = index.nearest(queries, counts, exclude={*exclude, *by_id})
        for name, near in zip(ids, neighbours, strict=True):
            for candidate, similarity in near:
                reasons.setdefault(candidate, []).append(Reason(name, by_id[name].p, similarity))
    candidates = [
        Retrieved(name, _weight(ranked[0]), tuple(ranked))
        for name, why in reasons.items()
        for ranked in [sorted(why, key=lambda r: (-_weight(r), -r.similarity, r.gold_id))]
    ]
    candidates.sort(key=lambda c: (-c.weight, -len(c.reasons), c.comparison_id))
    return Retrieval(
        tuple(candidates), sum(counts), tuple(sorted(by_id.keys() - set(ids))), len(vectors.ids), vectors.missing
    )


def _weight(reason: Reason) -> float:
    return (1 - reason.p) * max(reason.similarity, 0.0)
