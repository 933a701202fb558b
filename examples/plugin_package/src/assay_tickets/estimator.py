"""The advantage estimator `group_median`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.estimators.group_relative import over_tokens


@dataclass(frozen=True)
class GroupMedian:
    """A row's outcome minus the (lower) median of its group, on every token: one outlier does not move the baseline."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        advantage = torch.zeros(len(batch), dtype=torch.float64)
        for group in range(int(batch.group.max()) + 1):
            rows = (batch.group == group) & batch.valid
            if rows.any():
                advantage[rows] = batch.outcome[rows] - batch.outcome[rows].median()
        return over_tokens(advantage, batch.mask), None
