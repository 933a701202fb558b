"""Clusters of similar pairs (union-find on arrays), and which members of a cluster are kept.

In the order of preference, an item is kept unless it is similar to one already kept; gold always is. So every item
removed is itself similar to an item that stays, however long the chain that forms the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
