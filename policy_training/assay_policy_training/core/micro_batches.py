"""Splits the rows of an optimiser step into micro-batches for one pass each, and distributes them over processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from assay.models.devices import pass_tokens
from assay.models.parallelism.strategy import SingleProcess, split_by_cost
from assay_policy_training.core.batch import RolloutBatch


class LimitsPasses(Protocol):
    """Settings of passes: see `PassLimits`."""

    @property
    def micro_batch_tokens(self) -> int: ...
    @property
    def micro_batch_rows(self) -> int: ...


class PassLimits(NamedTuple):
    """Of one pass: positions, padding included and a shared context once, and rows; 0 = no limit. A row beyond the
    tokens goes alone."""

    tokens: int = 0
    rows: int = 0

    @classmethod
    def of(cls, settings: LimitsPasses, device: torch.device) -> "PassLimits":
        """The limits that are set, both where both are; where none is, the tokens of the device."""
        tokens, rows = settings.micro_batch_tokens, settings.micro_batch_rows
        return cls(tokens if tokens or rows else pass_tokens(device), rows)


def micro_batches(batch: RolloutBatch, rows: Tensor, *, limits: PassLimits, shared: bool) -> Iterator[Tensor]:
    """Split `rows` into parts within the limits of rows of similar length, longest first. `shared`: the model computes
    a common context once, so the rows of a group stay together; else rows are padded."""
    widths = torch.stack([batch.train_mask[rows].sum(1), batch.present[rows].sum(1)], 1)
    order = torch.argsort(widths.sum(1), descending=True, stable=True)
    if shared:
        order = order[torch.argsort(batch.group[rows][order], stable=True)]
    part: list[int] = []
    positions, widest, last = 0, (0, 0), (-1, -1)
    for index, group, (context, own) in zip(
        order.tolist(), batch.group[rows][order].tolist(), widths[order].tolist(), strict=True
    ):
        wider = max(widest[0], context), max(widest[1], own)
        same = last == (group, context)
        total = positions + own + (0 if same else context) if shared else (len(part) + 1) * sum(wider)
        if part and (0 < limits.rows <= len(part) or 0 < limits.tokens < total):
            yield rows[part]
            part, wider, total = [], (context, own), context + own
        part.append(index)
        positions, widest, last = total, wider, (group, context)
    if part:
        yield rows[part]


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one pass. `counts`: False for a pass that only keeps this process in step with the others."""

    rows: Tensor
    counts: bool = True


def process_micro_batches(
    batch: RolloutBatch, rows: Tensor, *, limits: PassLimits, shared: bool, parallel: SingleProcess
) -> list[MicroBatch]:
    """This process's micro-batches of `rows`, at least one if there are rows enough. Processes share all rows."""
    fair = -(-len(rows) // parallel.world)
    if fair * (parallel.world - 1) >= len(rows):  # rounded up it would leave a process without
        fair = max(1, len(rows) // parallel.world)
    limits = limits._replace(rows=min(limits.rows or fair, fair))
    splits = list(micro_batches(batch, rows, limits=limits, shared=shared))
    width = batch.train_mask.sum(1) + batch.lengths
    costs = [int(width[split].sum()) for split in splits]
    hands = split_by_cost(costs, parallel.world)
    assigned = [MicroBatch(splits[index]) for index in hands[parallel.rank]]
    if parallel.equal_passes:
        cheapest = min(range(len(splits)), key=lambda index: costs[index])
        assigned += [MicroBatch(splits[cheapest], counts=False)] * (max(map(len, hands)) - len(assigned))
    return assigned
