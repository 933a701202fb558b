"""Rows without a reward are not trained on, nor groups with too few that have one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch


@dataclass(frozen=True)
class EnoughValid:
    """S4: keep rows that have a reward, or get one later, in groups with at least `minimum` such rows: fewer give no
    advantage."""

    minimum: int = 2
    rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.minimum < 1:
            raise BadInputError(f"must be at least 1, not {self.minimum}", field="filters.minimum")

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        valid, group = batch.valid, batch.group
        if batch.unfinished is not None:
            valid = valid | batch.unfinished
        counts = torch.zeros(len(batch), dtype=torch.long).index_add_(0, group, valid.long())
        return valid & (counts[group] >= self.minimum)
