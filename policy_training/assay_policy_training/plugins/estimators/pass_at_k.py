"""The advantage for pass@k: only the best row of a group learns, by how far it is ahead of the second.

Source: arXiv 2503.19595, as in verl's grpo_passk estimator.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.estimators.group_relative import over_tokens


def pass_at_k(reward: Tensor, group: Tensor, *, by_std: bool = False, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """[B] largest - second largest reward of the group for its best row, 0 for the others.

    `by_std`: divided by (deviation + eps) of the group. 0 for single-row groups, where the two best are equal, and for
    missing rewards.
    """
    rows: dict[int, list[int]] = defaultdict(list)
    for row in (~torch.isnan(reward)).nonzero().squeeze(1).tolist():
        rows[int(group[row])].append(row)
    advantage = torch.zeros(len(reward), dtype=torch.float64)
    for members in rows.values():
        if len(members) < 2:
            continue
        best, second = torch.topk(reward[members].double(), 2).values.tolist()
        if best - second >= EQUAL_RANGE:
            advantage[members[int(reward[members].argmax())]] = best - second
    if by_std:
        _, _, deviation, _ = group_moments(reward, group, ddof=ddof)
        advantage = advantage / (deviation + eps)
    return torch.where(advantage == 0, 0.0, advantage)


@dataclass(frozen=True)
class PassAtK(RecipeSettings, section="estimator"):
    """S6: `pass_at_k` on every token; k is the group's size."""

    by_std: bool = False
    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Gt(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        advantage = pass_at_k(batch.outcome, batch.group, by_std=self.by_std, ddof=self.ddof, eps=self.eps)
        return over_tokens(advantage, batch.mask), None
