"""HAPO's objective: clip bounds and advantages that depend on a token's entropy and on the ratio.

Covers: with h in [-1, 1] of `token_weights.entropy_scale`, over the whole batch of the step under old,

    adaptive clip          h <= 0: clip_low (1 - h), wider; h > 0: clip_high (1 + h), wider
    differential advantage A (1 + beta h): for h > 0 where the ratio is outside [1 - clip_low/2, 1 + clip_high/2] (the
                           adapted bounds), for h <= 0 where it is inside

then PPO's clipped loss with a dual clip. The differential advantage already acts at r = 1, so the first step is not
REINFORCE's. Leaves out: HAPO's token-level advantages (`estimators.token_level`) and temperature
(`samplers.entropy_temperature`).

Source: HAPO arXiv 2509.16591; formulas of its text, without the sign error of its code.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import log_ratio
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.objectives.ratio_clip import clipped_loss
from assay_policy_training.plugins.protocols import Scope, UpdateContext
from assay_policy_training.plugins.token_weights.entropy import EntropyScale

SCALED = "hapo"  #: name in `extras`: h


def adaptive_clip(h: Tensor, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """(clip_low, clip_high) of each token."""
    return clip_low * (1 - h.clamp(max=0)), clip_high * (1 + h.clamp(min=0))


def differential_factor(h: Tensor, ratio: Tensor, low: Tensor, high: Tensor, beta: float) -> Tensor:
    """What each token's advantage is multiplied by; `low`, `high`: the adapted bounds."""
    inside = (ratio >= 1 - low / 2) & (ratio <= 1 + high / 2)
    acts = torch.where(h > 0, ~inside, inside)
    return torch.where(acts, 1 + beta * h, 1.0)


class Hapo(RecipeSettings, section="objective"):
    """S9, token scope."""

    clip_low: Annotated[float, Ge(0), Le(0.5)] = 0.2
    clip_high: Annotated[float, Ge(0)] = 0.2
    dual_clip: Annotated[float | None, Gt(1)] = 3.0
    beta: Annotated[float, Ge(0), Le(1)] = 1.0
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "entropy"})

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        scale = EntropyScale.of(batch.scored_entropy, batch.mask)
        h = torch.zeros(batch.mask.shape) if scale is None else scale.normalised(batch.scored_entropy)
        return batch.with_(extras={**batch.extras, SCALED: torch.where(batch.mask, h, 0.0)})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        h = context.given_rows.extras[SCALED].to(logp.device)
        low, high = adaptive_clip(h, self.clip_low, self.clip_high)
        distance = log_ratio(logp, context.logp_old)
        factor = differential_factor(h, distance.detach().exp(), low, high, self.beta)
        loss, clipped, dual = clipped_loss(
            distance, context.adv * factor, clip_low=low, clip_high=high, dual_clip=self.dual_clip
        )
        return loss, {"clip_fraction": clipped.float(), "dual_clip_fraction": dual.float(), "hapo_factor": factor}
