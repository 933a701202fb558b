"""Training items, encoded once: what was left out and why, and how a batch is cut into forward passes.

Covers: what every way to train shares, whether an item is a pair, a ranked list or one judged response. Leaves out:
encoding (each method's own), the batches of a run (`batch_order.py`), the forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from assay import ids
from assay.domain import PreferencePair

Item = TypeVar("Item")


class Tags(NamedTuple):
    """What an evaluation cuts a pair by. `chosen`, `rejected`: characters; `margin`: of the label, where it has one."""

    source: str
    category: str
    prompt: str
    chosen: int
    rejected: int
    margin: float | None


@dataclass(frozen=True)
class EncodedDataset(Generic[Item]):
    """Usable items, and how many were left out for which reason. `truncated`: items that lost old turns. `tags`: what
    an evaluation cuts the items by, one an item, or none."""

    items: list[Item]
    left_out: dict[str, int]
    truncated: int
    digest: str  #: of the given rows in their order; a resumed run checks it
    first_fault: str = field(default="", compare=False)
    tags: Sequence[Tags] = ()

    def __len__(self) -> int:
        return len(self.items)


def tags_of(pair: PreferencePair) -> Tags:
    prompt = ids.prompt_id(pair.prompt)
    return Tags(pair.source, pair.category, prompt, len(pair.chosen), len(pair.rejected), pair.margin)


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
