"""How the rows of an optimiser step are cut into pieces that go through a network at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from assay_policy_training.batch import RolloutBatch


def micro_batches(batch: RolloutBatch, rows: Tensor, *, size: int, shared: bool) -> Iterator[Tensor]:
    """Split `rows` into pieces of at most `size` rows of similar length, longest first. `shared`: the model computes
    what rows have in common once, so those of one group go side by side."""
    width = batch.train_mask[rows].sum(1) + batch.lengths[rows]
    ordered = rows[torch.argsort(width, descending=True, stable=True)]
    if shared:
        ordered = ordered[torch.argsort(batch.group[ordered], stable=True)]
    yield from ordered.split(size)  # type: ignore[no-untyped-call]
