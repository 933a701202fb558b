"""Training items, encoded once: what was left out and why, and the batches of an epoch as a pure function of a seed.

Covers: what every way to train shares, whether an item is a pair, a ranked list or one judged response. Leaves out:
encoding (each method's own), the forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

Item = TypeVar("Item")


@dataclass(frozen=True)
class ItemSet(Generic[Item]):
    """Usable items, and how many were left out for which reason. `truncated`: items that lost old turns."""

    items: list[Item]
    left_out: dict[str, int]
    truncated: int
    digest: str  #: of the given rows in their order; a resumed run checks it
    first_fault: str = field(default="", compare=False)

    def __len__(self) -> int:
        return len(self.items)


def steps_per_epoch(items: int, batch_size: int) -> int:
    """The last batch of an epoch may be smaller; no item is dropped."""
    return -(-items // batch_size)


def epoch_batches(items: int, batch_size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """Indices of each optimiser step's items. Depends on its arguments alone, so a data position is just a step.

    Batches are uniform draws: grouping by length happens inside a batch (`micro_batches`), so that no step sees
    only short or only long items.
    """
    order = np.random.default_rng((seed, epoch)).permutation(items).tolist()
    return [order[start : start + batch_size] for start in range(0, items, batch_size)]


def micro_batches(batch: Sequence[int], costs: Mapping[int, int], token_budget: int) -> list[list[int]]:
    """Cut a batch into forward passes of items of similar cost (positions each), the costliest first, so that
    items * highest cost <= budget. An item beyond the budget goes alone.
    """
    parts: list[list[int]] = []
    highest = 0
    for index in sorted(batch, key=lambda i: (-costs[i], i)):
        if not parts or (len(parts[-1]) + 1) * highest > token_budget:
            parts.append([])
            highest = costs[index]
        parts[-1].append(index)
    return parts
