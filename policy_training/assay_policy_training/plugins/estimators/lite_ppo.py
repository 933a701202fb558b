"""Lite PPO: the group's mean as baseline, the whole batch's deviation as scale.

Covers: rewards centred by group and divided by the deviation (ddof 1, over rows) of all centred rewards of the batch,
so that groups which hardly vary are not blown up. Leaves out: its token-mean loss and plain PPO clip (settings).

Source: "Tricks or Traps", arXiv 2508.08221, recalled: the paper may take the deviation of the rewards themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, dr_grpo, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.estimators.group_relative import over_tokens


def lite_ppo(reward: Tensor, group: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """[B] (R - mean of the group) / (std of all such differences + eps); 0 for single-row groups and missing rewards.

    Single rows and missing rewards are not in the deviation either. All 0 where every group is constant.
    """
    centred = dr_grpo(reward, group)
    count, _, _, spread = group_moments(reward, group, ddof=0)
    counted = (count > 1) & ~torch.isnan(reward)
    if int(counted.sum()) <= ddof or bool((spread[counted] < EQUAL_RANGE).all()):
        return torch.zeros_like(centred)
    return centred / (centred[counted].std(correction=ddof) + eps)


@dataclass(frozen=True)
class LitePpo(RecipeSettings, section="estimator"):
    """S6: `lite_ppo` on every token."""

    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(lite_ppo(batch.outcome, batch.group, ddof=self.ddof, eps=self.eps), batch.mask), None
