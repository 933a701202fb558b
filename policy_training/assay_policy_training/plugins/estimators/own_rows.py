"""Advantages of groups that also have rows of other sources than the policy (`samplers.mixed_groups`).

RL-PLUS: every row against the mean reward of the policy's own rows of its group, so that a demonstration which the
policy already equals teaches nothing. Source: arXiv 2508.00222, code YihongDong/RL-PLUS read (`grpo_use_std=False`).
"""

from typing import ClassVar

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.core.prompt import POLICY
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.estimators.group_relative import over_tokens


def above_own_mean(reward: Tensor, group: Tensor, own: Tensor) -> Tensor:
    """[B] R less the mean over the group's present rewards of `own` rows [B] bool; 0 where there is none, and for
    missing rewards."""
    count, mean, _, _ = group_moments(reward.masked_fill(~own, torch.nan), group, ddof=0)
    return torch.where((count < 1) | reward.isnan(), 0.0, reward.double() - mean)


class AboveOwnMean(RecipeSettings, section="estimator"):
    """S6: `above_own_mean` on every token."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        advantage = above_own_mean(batch.outcome, batch.group, batch.of_source(POLICY))
        return over_tokens(advantage, batch.mask), None
