"""OPO: the group's mean reward weighted by length as baseline.

Source: arXiv 2505.23585, as in verl's opo estimator. Under the assumption that a row's gradient energy grows with
its length this baseline is the one of least variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.estimators.group_relative import over_tokens


def opo(reward: Tensor, lengths: Tensor, group: Tensor) -> Tensor:
    """[B] R - sum(L R) / sum(L) over the group; 0 for single-row groups and missing rewards. Equal rewards give 0.

    `lengths` [B]: the tokens the policy generated. verl gives a single row its reward; here it is 0.
    """
    present = ~torch.isnan(reward)
    filled = torch.where(present, reward.double(), 0.0)
    weight = lengths.double() * present
    size = int(group.max()) + 1 if len(group) else 0
    empty = torch.zeros(size, dtype=torch.float64)
    total = empty.index_add(0, group, weight)
    baseline = empty.index_add(0, group, weight * filled) / torch.where(total > 0, total, 1.0)
    count, _, _, _ = group_moments(reward, group, ddof=0)
    return torch.where(present & (count > 1), filled - baseline[group], 0.0)


@dataclass(frozen=True)
class Opo(RecipeSettings, section="estimator"):
    """S6: `opo` on every token."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(opo(batch.outcome, batch.lengths, batch.group), batch.mask), None
