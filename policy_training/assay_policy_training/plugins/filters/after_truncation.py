"""Drops groups whose rewards are all equal once truncated answers count as 0.

Source: DLER, arXiv 2510.15110: without this filter the batch fills with prompts whose rollouts are all cut. Leaves out:
the reward itself, which `shaping.length.TruncatedReward` sets after the filter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments
from assay_policy_training.plugins.filters.dynamic_sampling import check_rounds


@dataclass(frozen=True)
class VariesAfterTruncation:
    """S4: drop groups whose rewards are all equal when truncated rows have `value`, and refill until enough are kept.
    Rows without a reward do not stay."""

    value: float = 0.0
    max_rounds: int = 10

    def __post_init__(self) -> None:
        check_rounds(self.max_rounds)

    @property
    def rounds(self) -> int:
        return self.max_rounds

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        reward = torch.where(batch.truncated & batch.valid, self.value, batch.scored_reward)
        spread = group_moments(reward, batch.group, ddof=0)[3]
        return batch.valid & (spread >= EQUAL_RANGE)
