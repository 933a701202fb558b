"""Trains on groups generated with a hint only where some of their rows are right and not all.

Source: Guide-GRPO, arXiv 2506.13923, code guide_rl read: kept if 0.001 <= accuracy <= 0.999.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.plugins.contexts.guide import GUIDED


@dataclass(frozen=True)
class GuidedMixed:
    """S4: keep guided groups whose mean `acc` lies in [low, high], and all others; rows without a reward go."""

    low: float = 0.001
    high: float = 0.999
    rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise BadInputError(f"0 <= low <= high <= 1, not {self.low}, {self.high}", field="filters.low")

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        guided = batch.of_source(GUIDED)
        if batch.acc is None:
            return batch.counted
        _, mean, _, _ = group_moments(batch.acc, batch.group, ddof=0)
        return batch.counted & (~guided | ((mean >= self.low) & (mean <= self.high)))
