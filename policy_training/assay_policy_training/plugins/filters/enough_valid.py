"""Rows without a reward are not trained on, nor groups with too few that have one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


@dataclass(frozen=True)
class EnoughValid(RecipeSettings, section="filters"):
    """S4: keep rows that have a reward, or get one later, in groups with at least `minimum` such rows: fewer give no
    advantage."""

    minimum: Annotated[int, Ge(1)] = 2
    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        valid, group = batch.valid, batch.group
        if batch.unfinished is not None:
            valid = valid | batch.unfinished
        counts = torch.zeros(len(batch), dtype=torch.long).index_add_(0, group, valid.long())
        return valid & (counts[group] >= self.minimum)
