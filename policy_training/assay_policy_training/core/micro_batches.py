"""How the rows of an optimiser step are cut into pieces that go through a network at once, and dealt to processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.models.parallelism.strategy import Alone, deal
from assay_policy_training.core.batch import RolloutBatch


def micro_batches(batch: RolloutBatch, rows: Tensor, *, size: int, shared: bool) -> Iterator[Tensor]:
    """Split `rows` into pieces of at most `size` rows of similar length, longest first. `shared`: the model computes
    what rows have in common once, so those of one group go side by side."""
    width = batch.train_mask[rows].sum(1) + batch.lengths[rows]
    ordered = rows[torch.argsort(width, descending=True, stable=True)]
    if shared:
        ordered = ordered[torch.argsort(batch.group[ordered], stable=True)]
    yield from ordered.split(size)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Piece:
    """Rows of one pass. `counts`: off for a pass that is made only because the other processes make one."""

    rows: Tensor
    counts: bool = True


def own_pieces(batch: RolloutBatch, rows: Tensor, *, size: int, shared: bool, parallel: Alone) -> list[Piece]:
    """This process's pieces of `rows`; all processes' together are all of them. There is one for each process, if there
    are rows enough."""
    fair = -(-len(rows) // parallel.world)
    if fair * (parallel.world - 1) >= len(rows):  # rounded up it would leave a process without
        fair = max(1, len(rows) // parallel.world)
    pieces = list(micro_batches(batch, rows, size=max(1, min(size, fair)), shared=shared))
    width = batch.train_mask.sum(1) + batch.lengths
    costs = [int(width[piece].sum()) for piece in pieces]
    hands = deal(costs, parallel.world)
    own = [Piece(pieces[number]) for number in hands[parallel.rank]]
    if parallel.equal_passes:
        cheapest = min(range(len(pieces)), key=lambda number: costs[number])
        own += [Piece(pieces[cheapest], counts=False)] * (max(map(len, hands)) - len(own))
    return own
