"""The Optimal Token Baseline: per position, the baseline that makes the gradient's variance smallest.

Covers: the squared norm of the score in logit space as a proxy of gradient energy, taken from log-probs and sum of
squared probabilities at the sampling temperature; weights of a behaviour correction, squared; rows aligned by the
index among generated tokens, so that observations and hints between turns are skipped; positions that one row only
reaches. Leaves out: dividing by a deviation, measuring the variance that is saved.

Source: arXiv 2602.07078; verl's optimal_token_baseline and tir_optimal_token_baseline.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


def score_energy(logp: Tensor, sum_pi_sq: Tensor) -> Tensor:
    """Squared norm of d log pi(y) / d logits = 1 - 2 pi(y) + sum_v pi(v)^2, at least 0; any shape."""
    return (1 - 2 * logp.exp() + sum_pi_sq).clamp(min=0.0)


def returns_to_go(token_reward: Tensor, mask: Tensor) -> Tensor:
    """[B,T] sum of this and all later token rewards of the row's own tokens."""
    return (token_reward * mask).flip(1).cumsum(1).flip(1)


def optimal_token_advantage(
    returns: Tensor, energy: Tensor, mask: Tensor, group: Tensor, *, zero_tail: bool = True, eps: float = 1e-8
) -> Tensor:
    """[B,T] float64 G - B_t on `mask`, 0 elsewhere, with B_t = sum_i G_it W_it / (sum_i W_it + eps) over the group.

    `returns` [B,T]; W is the running sum of `energy` [B,T] over the row's tokens in `mask`; t counts those tokens.
    `group` [B]. `zero_tail`: B = 0 where one row only has a t-th token, whose baseline would be its own return. Rows
    alone in their group, and rows without a token in `mask`, get 0; rows that are all equal get G - B_t = 0.
    """
    returns, mask = returns.double(), mask.bool()
    weight = (energy.double() * mask).cumsum(1)
    position = (mask.long().cumsum(1) - 1).clamp(min=0)
    width = mask.shape[1]
    cell = group[:, None] * width + position
    size = (int(group.max()) + 1) * width if len(group) else 0

    def over_group(values: Tensor) -> Tensor:
        sums = torch.zeros(size, dtype=torch.float64, device=mask.device)
        return sums.index_add(0, cell[mask], values[mask])[cell]

    baseline = over_group(returns * weight) / (over_group(weight) + eps)
    if zero_tail:
        baseline = torch.where(over_group(torch.ones_like(returns)) < 2, 0.0, baseline)
    rows = torch.zeros(len(mask), dtype=torch.long, device=mask.device).index_add(0, group, mask.any(1).long())[group]
    return torch.where(mask & (rows > 1)[:, None], returns - baseline, 0.0)


class OptimalTokenBaseline(RecipeSettings, section="estimator"):
    """S6: `optimal_token_advantage` of returns-to-go; W reads `mask`, whatever corrections do to `loss_mask`."""

    zero_tail: bool = True
    eps: Annotated[float, Gt(0)] = 1e-8
    group_relative: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "sum_pi_sq"})

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        energy = score_energy(batch.scored_logp_old.double(), batch.extras["sum_pi_sq"].double())
        if batch.is_weight is not None:
            energy = energy * batch.is_weight.double() ** 2
        mask = batch.mask & batch.valid[:, None]
        returns = returns_to_go(batch.token_reward, batch.mask)
        advantage = optimal_token_advantage(returns, energy, mask, batch.group, zero_tail=self.zero_tail, eps=self.eps)
        return advantage.float(), None
