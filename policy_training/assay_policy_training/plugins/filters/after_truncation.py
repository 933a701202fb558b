"""Drops groups whose rewards are all equal once truncated answers count as 0.

Source: DLER, arXiv 2510.15110: without this filter the batch fills with prompts whose rollouts are all cut. Leaves out:
the reward itself, which `shaping.length.TruncatedReward` sets after the filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments
from assay_policy_training.plugins.filters.dynamic_sampling import Refilling


@dataclass(frozen=True)
class VariesAfterTruncation(Refilling):
    """S4: drop groups whose rewards are all equal when truncated rows have `value`, and refill until enough are kept.
    Rows without a reward do not stay."""

    value: float = 0.0
    max_rounds: Annotated[int, Ge(1)] = 10

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        reward = torch.where(batch.truncated & batch.valid, self.value, batch.scored_reward)
        spread = group_moments(reward, batch.group, ddof=0)[3]
        return batch.valid & (spread >= EQUAL_RANGE)
