"""HAPO's token-level group average: a group's mean and deviation count every row as often as it has tokens.

A_i = (R_i - mean) / (std + eps) with the mean and the deviation (ddof 0) over all tokens of the group. A group with a
row further than `outlier` deviations out gets GRPO's advantages instead. Single-row and all-equal groups and missing
rewards get 0. Source: HAPO arXiv 2509.16591.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.estimators.group_relative import grpo, over_tokens


def token_level(
    reward: Tensor, lengths: Tensor, group: Tensor, *, eps: float = 1e-6, outlier: float = 5.0, ddof: int = 1
) -> Tensor:
    """[B] float64; `reward` [B] with NaN = missing, `lengths` [B] tokens, `group` [B]. `ddof`: of GRPO's fall-back."""
    reward = reward.double()
    present = ~torch.isnan(reward)
    size = int(group.max()) + 1 if len(group) else 0
    weight = torch.where(present, lengths.double(), 0.0)
    filled = torch.where(present, reward, 0.0)

    def mean_of(values: Tensor) -> Tensor:
        total = torch.zeros(size, dtype=torch.float64, device=reward.device)
        tokens = total.clone().index_add(0, group, weight).clamp(min=1)
        return (total.index_add(0, group, weight * values) / tokens)[group]

    centred = filled - mean_of(filled)
    z = centred / (mean_of(centred**2).sqrt() + eps)
    z = torch.where(present, z, 0.0)
    extreme = torch.zeros(size, dtype=torch.float64, device=reward.device).scatter_reduce(0, group, z.abs(), "amax")
    count, _, _, spread = group_moments(reward, group, ddof=0)
    z = torch.where(extreme[group] >= outlier, grpo(reward, group, ddof=ddof, eps=eps), z)
    return torch.where((count < 2) | (spread < EQUAL_RANGE) | ~present, 0.0, z)


@dataclass(frozen=True)
class TokenLevel(RecipeSettings, section="estimator"):
    """S6: `token_level` on every token."""

    eps: Annotated[float, Ge(0)] = 1e-6
    outlier: Annotated[float, Gt(0)] = 5.0
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        advantage = token_level(batch.outcome, batch.lengths, batch.group, eps=self.eps, outlier=self.outlier)
        return over_tokens(advantage, batch.mask), None
