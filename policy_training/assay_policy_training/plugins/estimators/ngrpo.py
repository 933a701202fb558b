"""NGRPO: a virtual best row in every group, so that groups in which everything is wrong push away from it.

Covers: mean and deviation over the rows and one virtual row of reward `r_max` (ddof 1 over n + 1). Leaves out: its
asymmetric clip (a setting of `ppo_clip`), dropping groups that are all correct (`filters.drop_solved`). Advantages of
a group no longer sum to 0: on the whole they push probabilities down, so watch the entropy.

Source: arXiv 2509.18851, code nangongrui-ngr/NGRPO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.estimators.group_relative import over_tokens


def ngrpo(reward: Tensor, group: Tensor, *, r_max: float = 1.0, eps: float = 1e-6) -> Tensor:
    """[B] (R - mean') / (std' + eps), where mean' and std' (ddof 1) also count one row of reward `r_max`.

    0 for single-row groups, for groups whose rows all have `r_max`, and for missing rewards.
    """
    count, mean, deviation, spread = group_moments(reward, group, ddof=0)
    wider_mean = (count * mean + r_max) / (count + 1)
    squares = count * deviation**2 + count / (count + 1) * (r_max - mean) ** 2
    wider_deviation = (squares / count.clamp(min=1)).sqrt()
    flat = (count < 2) | torch.isnan(reward) | ((spread < EQUAL_RANGE) & ((r_max - mean).abs() < EQUAL_RANGE))
    return torch.where(flat, 0.0, (reward.double() - wider_mean) / (wider_deviation + eps))


@dataclass(frozen=True)
class Ngrpo(RecipeSettings, section="estimator"):
    """S6: `ngrpo` on every token. `r_max`: the largest reward there can be, after shaping."""

    r_max: float = 1.0
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        """Raises BadInputError for a reward above `r_max`: it is then not the largest."""
        outcome = batch.outcome
        if bool((outcome > self.r_max + EQUAL_RANGE).any()):
            largest = float(outcome[~outcome.isnan()].max())
            raise BadInputError(
                f"a row earned {largest:.6g}, more than the largest reward {self.r_max:.6g}", field="estimator.r_max"
            )
        return over_tokens(ngrpo(outcome, batch.group, r_max=self.r_max, eps=self.eps), batch.mask), None
