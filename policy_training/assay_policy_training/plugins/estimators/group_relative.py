"""Group-relative advantages: GRPO, Dr. GRPO, RLOO.

Covers: each with its spread (`ddof`, `eps`), single-row and all-equal groups stated, grouped by uid, in any order of
rows; a missing reward (NaN) takes no part in its group's statistics and gets advantage 0 (the loop also takes it
out of the loss). Leaves out: critics and GAE, normalising over the batch.

Sources: GRPO arXiv 2402.03300; Dr. GRPO arXiv 2503.20783; RLOO arXiv 2402.14740.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, dr_grpo, group_moments
from assay_policy_training.core.settings import RecipeSettings


def grpo(reward: Tensor, group: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """[B] (R - mean) / (std + eps) over the group; 0 for single-row and all-equal groups and missing rewards."""
    count, mean, deviation, spread = group_moments(reward, group, ddof=ddof)
    advantage = (reward.double() - mean) / (deviation + eps)
    flat = (count < 2) | (spread < EQUAL_RANGE) | torch.isnan(reward)
    return torch.where(flat, 0.0, advantage)


def rloo(reward: Tensor, group: Tensor) -> Tensor:
    """[B] R - mean of the other rows of the group = n/(n-1) (R - mean); 0 for single-row groups and missing rewards."""
    count, mean, _, _ = group_moments(reward, group, ddof=0)
    factor = count / (count - 1).clamp(min=1)
    return torch.where((count < 2) | torch.isnan(reward), 0.0, factor * (reward.double() - mean))


def over_tokens(advantage: Tensor, mask: Tensor) -> Tensor:
    """[B] to [B,T] float32: the row's advantage on each of its own tokens, 0 elsewhere."""
    return (advantage[:, None] * mask).float()


@dataclass(frozen=True)
class Grpo(RecipeSettings, section="estimator"):
    """S6: `grpo` on every token. ddof 1 as in verl and TRL; eps 1e-6 (verl; TRL takes 1e-4)."""

    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(grpo(batch.outcome, batch.group, ddof=self.ddof, eps=self.eps), batch.mask), None


@dataclass(frozen=True)
class DrGrpo(RecipeSettings, section="estimator"):
    """S6: `dr_grpo` on every token."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(dr_grpo(batch.outcome, batch.group), batch.mask), None


@dataclass(frozen=True)
class Rloo(RecipeSettings, section="estimator"):
    """S6: `rloo` on every token."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(rloo(batch.outcome, batch.group), batch.mask), None
