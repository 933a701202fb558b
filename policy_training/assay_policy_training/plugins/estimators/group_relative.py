"""Group-relative advantages: GRPO, Dr. GRPO, RLOO.

Covers: each with its spread (`ddof`, `eps`), single-row and all-equal groups stated, grouped by uid and blind to row
order; a missing reward (NaN) takes no part in its group's statistics and gets advantage 0 (the loop also takes it
out of the loss). Leaves out: critics and GAE, normalising over the batch.

Sources: GRPO arXiv 2402.03300; Dr. GRPO arXiv 2503.20783; RLOO arXiv 2402.14740.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch

#: Rewards of a group closer together than this count as equal: else the division blows rounding noise up to +-1.
EQUAL_RANGE = 1e-6


def group_moments(reward: Tensor, group: Tensor, *, ddof: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Count, mean, standard deviation and range of each row's group over its present rewards, each [B] float64.

    `reward` [B] with NaN = missing, `group` [B] int64 from `batch.group_index`. Where the count does not exceed
    `ddof` the deviation is 0; where the count is 0 the mean is 0.
    """
    reward = reward.double()
    present = ~torch.isnan(reward)
    size = int(group.max()) + 1 if len(group) else 0
    known = torch.where(present, reward, 0.0)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(size, dtype=torch.float64, device=reward.device).index_add(0, group, values)

    count = total(present.double())
    mean = total(known) / count.clamp(min=1)
    squares = total(torch.where(present, (known - mean[group]) ** 2, 0.0))
    deviation = torch.where(count > ddof, squares / (count - ddof).clamp(min=1), 0.0).sqrt()
    infinite = torch.full((size,), torch.inf, dtype=torch.float64, device=reward.device)
    low = infinite.scatter_reduce(0, group, torch.where(present, reward, torch.inf), "amin")
    high = (-infinite).scatter_reduce(0, group, torch.where(present, reward, -torch.inf), "amax")
    spread = torch.where(count > 0, high - low, 0.0)
    return count[group], mean[group], deviation[group], spread[group]


def grpo(reward: Tensor, group: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """[B] (R - mean) / (std + eps) over the group; 0 for single-row and all-equal groups and missing rewards."""
    count, mean, deviation, spread = group_moments(reward, group, ddof=ddof)
    advantage = (reward.double() - mean) / (deviation + eps)
    flat = (count < 2) | (spread < EQUAL_RANGE) | torch.isnan(reward)
    return torch.where(flat, 0.0, advantage)


def dr_grpo(reward: Tensor, group: Tensor) -> Tensor:
    """[B] R - mean over the group; 0 for single-row groups and missing rewards."""
    count, mean, _, _ = group_moments(reward, group, ddof=0)
    return torch.where((count < 2) | torch.isnan(reward), 0.0, reward.double() - mean)


def rloo(reward: Tensor, group: Tensor) -> Tensor:
    """[B] R - mean of the other rows of the group = n/(n-1) (R - mean); 0 for single-row groups and missing rewards."""
    count, mean, _, _ = group_moments(reward, group, ddof=0)
    factor = count / (count - 1).clamp(min=1)
    return torch.where((count < 2) | torch.isnan(reward), 0.0, factor * (reward.double() - mean))


def over_tokens(advantage: Tensor, mask: Tensor) -> Tensor:
    """[B] to [B,T] float32: the row's advantage on each of its own tokens, 0 elsewhere."""
    return (advantage[:, None] * mask).float()


def check_spread(ddof: int, eps: float) -> None:
    """Raises BadInputError for settings of an estimator by which nothing can be divided."""
    if ddof not in (0, 1):
        raise BadInputError(f"must be 0 or 1, not {ddof}", field="estimator.ddof")
    if not eps >= 0:
        raise BadInputError(f"must not be negative, not {eps}", field="estimator.eps")


@dataclass(frozen=True)
class Grpo:
    """S6: `grpo` on every token. ddof 1 as in verl and TRL; eps 1e-6 (verl; TRL takes 1e-4)."""

    ddof: int = 1
    eps: float = 1e-6
    group_relative: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_spread(self.ddof, self.eps)

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(grpo(batch.outcome, batch.group, ddof=self.ddof, eps=self.eps), batch.mask), None


@dataclass(frozen=True)
class DrGrpo:
    """S6: `dr_grpo` on every token."""

    group_relative: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(dr_grpo(batch.outcome, batch.group), batch.mask), None


@dataclass(frozen=True)
class Rloo:
    """S6: `rloo` on every token."""

    group_relative: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(rloo(batch.outcome, batch.group), batch.mask), None
