"""Splits the rows of an optimiser step into micro-batches for one pass each, and distributes them over processes."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.models.parallelism.strategy import SingleProcess, split_by_cost
from assay_policy_training.core.batch import RolloutBatch


def micro_batches(batch: RolloutBatch, rows: Tensor, *, size: int, shared: bool) -> Iterator[Tensor]:
    """Split `rows` into parts of at most `size` rows of similar length, longest first. `shared`: the model computes a
    common context once, so the rows of a group stay together."""
    width = batch.train_mask[rows].sum(1) + batch.lengths[rows]
    ordered = rows[torch.argsort(width, descending=True, stable=True)]
    if shared:
        ordered = ordered[torch.argsort(batch.group[ordered], stable=True)]
    yield from ordered.split(size)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one pass. `counts`: False for a pass that only keeps this process in step with the others."""

    rows: Tensor
    counts: bool = True


def process_micro_batches(
    batch: RolloutBatch, rows: Tensor, *, size: int, shared: bool, parallel: SingleProcess
) -> list[MicroBatch]:
    """This process's micro-batches of `rows`, at least one if there are rows enough. Processes share all rows."""
    fair = -(-len(rows) // parallel.world)
    if fair * (parallel.world - 1) >= len(rows):  # rounded up it would leave a process without
        fair = max(1, len(rows) // parallel.world)
    splits = list(micro_batches(batch, rows, size=max(1, min(size, fair)), shared=shared))
    width = batch.train_mask.sum(1) + batch.lengths
    costs = [int(width[split].sum()) for split in splits]
    hands = split_by_cost(costs, parallel.world)
    assigned = [MicroBatch(splits[index]) for index in hands[parallel.rank]]
    if parallel.equal_passes:
        cheapest = min(range(len(splits)), key=lambda index: costs[index])
        assigned += [MicroBatch(splits[cheapest], counts=False)] * (max(map(len, hands)) - len(assigned))
    return assigned
