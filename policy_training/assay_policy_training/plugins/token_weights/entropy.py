"""Weights on tokens by their entropy, and none on those of truncated rows.

HAPO's measure of a token is how far the logarithm of its entropy is from the batch's pivot, in [-1, 1]. e = ln max(H,
1e-8); the pivot is the .8-quantile (nearest) of e over the policy's tokens; h = (e - pivot) / root mean square of e -
pivot, divided by the largest h where it is positive and by the size of the smallest where it is negative, so that the
sign stays: the released code divides negative h by a negative number, which makes every token's value positive and the
branch for low entropy dead. Read by HAPO's objective and by its sampler. Source: HAPO arXiv 2509.16591.

High entropy ("80/20"): only the tokens of highest entropy are trained on. The threshold is a quantile of the old
policy's entropies, at the sampling temperature, over all of the policy's tokens of the step; only kept tokens are in
the denominators. TRL takes the entropies of each forward pass instead; those of old do not change between minibatches.
Source: "Beyond the 80/20 Rule" arXiv 2506.01939, as in TRL.

STEER: tokens that are estimated to change the policy's entropy most count less. Omega_t = |A_t pi/pi_old (1 - pi) (ln
pi + H_t)|, all detached, with the current policy's probability pi of the token and its entropy H. Exponential map:
exp(-k Omega) with k = -ln(lowest) / max(largest Omega, .02). Linear map: from `highest` at the smallest Omega of the
step down to `lowest` at the largest. Smallest and largest are those of the whole step under old (released code takes
them of each micro-batch, so that its size changes the result). Source: STEER arXiv 2510.10150.

Not truncated, overlong filtering as a mask: truncated rows get no gradient, and stay in their group's statistics.
Source: DAPO arXiv 2503.14476 ("masks the loss of truncated samples").
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import log_ratio
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext


def quantile(values: Tensor, share: float, *, nearest: bool = False) -> float:
    """Of values [N], N >= 1: linear between the two neighbours, or the nearest of them."""
    ordered = values.double().sort().values
    position = share * (len(ordered) - 1)
    below = int(position)
    if nearest:
        return float(ordered[round(position)])
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (position - below) * (ordered[above] - ordered[below]))


LEAST_ENTROPY = 1e-8
PIVOT = 0.8


@dataclass(frozen=True)
class EntropyScale:
    """Pivot, root mean square, and the ends of h over a batch; all of ln H."""

    pivot: float
    deviation: float
    highest: float  #: largest h, 0 where none is positive
    lowest: float  #: smallest h, 0 where none is negative

    @classmethod
    def of(cls, entropy: Tensor, mask: Tensor) -> "EntropyScale | None":
        """Of the tokens of `mask`; None where there are none."""
        values = entropy[mask].double().clamp(min=LEAST_ENTROPY).log()
        if not len(values):
            return None
        pivot = quantile(values, PIVOT, nearest=True)
        deviation = float(((values - pivot) ** 2).mean().sqrt())
        if deviation == 0:
            return cls(pivot, 0.0, 0.0, 0.0)
        h = (values - pivot) / deviation
        return cls(pivot, deviation, max(0.0, float(h.max())), min(0.0, float(h.min())))

    def normalised(self, entropy: Tensor) -> Tensor:
        """h in [-1, 1], float32; values outside the batch's range are cut."""
        if self.deviation == 0:
            return torch.zeros(entropy.shape, device=entropy.device)
        h = (entropy.detach().double().clamp(min=LEAST_ENTROPY).log() - self.pivot) / self.deviation
        up = h / self.highest if self.highest > 0 else h
        down = h / -self.lowest if self.lowest < 0 else h
        return torch.where(h > 0, up, down).clamp(-1.0, 1.0).float()


def high_entropy(entropy: Tensor, mask: Tensor, share: float) -> Tensor:
    """[B,T] bool: tokens of `mask` whose entropy is at least its (1 - share) quantile."""
    if not mask.any():
        return torch.zeros_like(mask)
    return mask & (entropy.double() >= quantile(entropy[mask], 1 - share))


class HighEntropy(RecipeSettings, section="token_weights"):
    """S8: `share` of the tokens keep their gradient."""

    share: Annotated[float, Gt(0), Le(1)] = 0.2
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        return batch.with_(loss_mask=batch.loss_mask & high_entropy(batch.scored_entropy, batch.mask, self.share))

    def weight(self, logp: Tensor, context: UpdateContext) -> None:
        return None


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


class NotTruncated(RecipeSettings, section="token_weights"):
    """S8: takes rows that the length limit cut out of `loss_mask`; denominators count the others only."""

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        return batch.with_(loss_mask=batch.loss_mask & ~batch.truncated[:, None])

    def weight(self, logp: Tensor, context: UpdateContext) -> None:
        return None
