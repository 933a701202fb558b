"""STEER: tokens that are estimated to change the policy's entropy most count less.

Omega_t = |A_t pi/pi_old (1 - pi) (ln pi + H_t)|, all detached, with the current policy's probability pi of the token
and its entropy H. Exponential map: exp(-k Omega) with k = -ln(lowest) / max(largest Omega, .02). Linear map: from
`highest` at the smallest Omega of the step down to `lowest` at the largest. Smallest and largest are those of the whole
step under old (released code takes them of each micro-batch, so that its size changes the result).

Source: STEER arXiv 2510.10150.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import log_ratio
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext

RANGE = "steer"  #: name in `extras`: [B,2], the smallest and largest Omega of the step
LEAST_LARGEST = 0.02


def entropy_change(advantage: Tensor, logp: Tensor, logp_old: Tensor, entropy: Tensor) -> Tensor:
    """|Omega|, of one shape, detached."""
    logp, entropy = logp.detach(), entropy.detach()
    moved = log_ratio(logp, logp_old).exp() * (1 - logp.exp()) * (logp + entropy)
    return (advantage * moved).abs()


def exponential_map(change: Tensor, largest: float | Tensor, lowest: float) -> Tensor:
    """Weights in [lowest, 1]."""
    scale = -math.log(lowest) / torch.as_tensor(largest).clamp(min=LEAST_LARGEST)
    return (-scale * change).exp().clamp(lowest, 1.0)


def linear_map(change: Tensor, least: float | Tensor, largest: float | Tensor, lowest: float, highest: float) -> Tensor:
    """Weights in [lowest, highest]; 1 where every change is the same."""
    width = torch.as_tensor(largest) - torch.as_tensor(least)
    weight = highest - (highest - lowest) * (change - least) / torch.where(width > 0, width, 1.0)
    return torch.where(width > 0, weight.clamp(lowest, highest), 1.0)


@dataclass(frozen=True)
class Steer(RecipeSettings, section="token_weights"):
    """S8. `highest`: of the linear map."""

    map: Literal["exp", "linear"] = "exp"
    lowest: Annotated[float, Gt(0), Lt(1)] = 0.8
    highest: Annotated[float, Ge(1)] = 1.2
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "entropy"})

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        adv, old, entropy = batch.estimated_adv, batch.scored_logp_old, batch.scored_entropy
        weights = entropy_change(adv, old, old, entropy)[batch.mask]
        ends = torch.stack([weights.amin(), weights.amax()]) if len(weights) else torch.zeros(2)
        return batch.with_(extras={**batch.extras, RANGE: ends.expand(len(batch), 2)})

    def weight(self, logp: Tensor, context: UpdateContext) -> Tensor:
        least, largest = context.given_rows.extras[RANGE].to(logp.device).unsqueeze(-1).unbind(1)
        change = entropy_change(context.adv, logp, context.logp_old, context.scored_entropy)
        if self.map == "exp":
            return exponential_map(change, largest, self.lowest)
        return linear_map(change, least, largest, self.lowest, self.highest)
