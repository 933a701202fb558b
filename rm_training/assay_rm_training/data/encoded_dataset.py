"""Encoded training items with the rows left out and why, and how a batch is split into forward passes.

Covers: what all methods share, whether an item is a pair, a ranked list or one judged response. Leaves out: encoding
(per method), the batches of a run (`batch_order.py`), the forward pass.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from assay import ids
from assay.domain import PreferencePair, response_text
from assay.models.parallelism.strategy import SingleProcess, split_by_cost
from assay.runs.coverage import Coverage
from assay_rm_training.data.token_shards import StoredItems, write_items

Item = TypeVar("Item")
New = TypeVar("New")
#: Where encoded items are kept: `list`, or `write_items` in a folder.
Collect = Callable[[Iterable[Any]], Sequence[Any]]
_OPEN = 64  #: passes that may still get items, so that splitting takes time in proportion to them


class Tags(NamedTuple):
    """What an evaluation slices pairs by. `chosen`, `rejected`: characters; `margin`: of the label, where it has
    one."""

    source: str
    category: str
    prompt: str
    chosen: int
    rejected: int
    margin: float | None


@dataclass(frozen=True)
class EncodedDataset(Generic[Item]):
    """Usable items, and counts of rows left out by reason. `truncated`: items that lost old turns."""

    items: Sequence[Item]
    left_out: dict[str, int]
    truncated: int
    digest: str  #: of the rows in their order; checked when a run resumes
    first_fault: str = field(default="", compare=False)
    content: str = field(default="", compare=False)  #: of all fields of the rows

    def with_items(self, items: Iterable[New]) -> "EncodedDataset[New]":
        """With other items, kept where these are kept: in a new folder beside theirs, or in a list."""
        new: Sequence[New]
        if isinstance(self.items, StoredItems):
            folder: Path = self.items.folder
            new = write_items(folder.with_name(f"{folder.name}-prepared"), items)
        else:
            new = list(items)
        return cast("EncodedDataset[New]", replace(self, items=cast(Any, new)))

    def __len__(self) -> int:
        return len(self.items)

    def coverage(self, rows: int, unit: str) -> Coverage:
        """Of the `rows` that were encoded; `unit`: what one is called, plural. An item may hold several rows."""
        used = rows - sum(self.left_out.values())
        return Coverage(rows, used, unit if used == len(self.items) else "rows", self.left_out, self.truncated)


def content_digest(rows: Iterable[Any]) -> str:
    return ids.rows_digest((repr(row),) for row in rows)


def tags_of(pair: PreferencePair) -> Tags:
    prompt = ids.prompt_id(pair.prompt)
    chosen, rejected = len(response_text(pair.chosen)), len(response_text(pair.rejected))
    return Tags(pair.source, pair.category, prompt, chosen, rejected, pair.margin)


class ItemPass(NamedTuple):
    """`numbers`: the items of a forward pass. `counts`: else it only keeps this process in step with the others."""

    numbers: list[int]
    counts: bool


def item_passes(costs: Sequence[int], token_budget: int, parallel: SingleProcess, *, padded: bool) -> list[ItemPass]:
    """This process's share of the items as forward passes (`micro_batches`); where weights are divided as many as the
    others make, the cheapest item in those that are added."""
    hands = split_by_cost(costs, parallel.world)
    cuts = [micro_batches(hand, {n: costs[n] for n in hand}, token_budget, padded=padded) for hand in hands]
    passes = [ItemPass(numbers, True) for numbers in cuts[parallel.rank]]
    if parallel.equal_passes:
        cheapest = min(range(len(costs)), key=lambda n: costs[n])
        passes += [ItemPass([cheapest], False)] * (max(map(len, cuts)) - len(passes))
    return passes


def micro_batches(
    batch: Sequence[int], costs: Mapping[int, int], token_budget: int, *, padded: bool = False
) -> list[list[int]]:
    """Split a batch into forward passes within a budget of positions; `costs`: of each item alone. The costliest first,
    each into the first pass with room; where items are `padded` to the costliest, beside those of similar cost. An item
    beyond the budget gets its own pass."""
    parts: list[list[int]] = []
    positions: list[int] = []  # of each part, of its costliest item where padded
    for index in sorted(batch, key=lambda i: (-costs[i], i)):
        for number in range(max(0, len(parts) - _OPEN), len(parts)):
            part = parts[number]
            if padded and (len(part) + 1) * positions[number] <= token_budget:
                break
            if not padded and positions[number] + costs[index] <= token_budget:
                positions[number] += costs[index]
                break
        else:
            parts.append(part := [])
            positions.append(costs[index])
        part.append(index)
    return parts
