"""Advantages of groups that also have rows of other sources than the policy (`samplers.mixed_groups`).

Nash-MD: an own row's advantage is the probability that it beats the mixture of policy and reference, less 1/2, as a
Bradley-Terry model of the rewards says, over all opponents of its group. Source: arXiv 2312.00886, TRL's NashMDTrainer
read. Oracle reward 1 against 0 and 2: (.731059 + .268941)/2 - .5 = 0; against 0 alone .231059.

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
from assay_policy_training.plugins.samplers.mixed_groups import OPPONENT


def above_own_mean(reward: Tensor, group: Tensor, own: Tensor) -> Tensor:
    """[B] R less the mean over the group's present rewards of `own` rows [B] bool; 0 where there is none, and for
    missing rewards."""
    count, mean, _, _ = group_moments(reward.masked_fill(~own, torch.nan), group, ddof=0)
    return torch.where((count < 1) | reward.isnan(), 0.0, reward.double() - mean)


def win_advantage(reward: Tensor, group: Tensor, opponent: Tensor) -> Tensor:
    """[B] mean over the group's `opponent` rows [B] bool of sigmoid(R - R_opponent), less 1/2; 0 for opponents, missing
    rewards, and groups without an opponent that has one."""
    present = ~reward.isnan()
    filled = reward.nan_to_num()
    meets = (group[:, None] == group) & (present & opponent)
    share = (torch.sigmoid(filled[:, None] - filled) * meets).sum(1) / meets.sum(1).clamp(min=1)
    return torch.where(present & ~opponent & meets.any(1), share - 0.5, 0.0)


class WinAdvantage(RecipeSettings, section="estimator"):
    """S6: `win_advantage` on every token, against rows of the source `opponent`."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        advantage = win_advantage(batch.outcome, batch.group, batch.of_source(OPPONENT))
        return over_tokens(advantage, batch.mask), None


class AboveOwnMean(RecipeSettings, section="estimator"):
    """S6: `above_own_mean` on every token."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        advantage = above_own_mean(batch.outcome, batch.group, batch.of_source(POLICY))
        return over_tokens(advantage, batch.mask), None
