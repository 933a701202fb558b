"""Guide-GRPO's loss: the clipped ratio on the policy's own rows, a shaped ratio on rows generated with a hint.

Covers: f(r) = r / (r + g) or r^k on rows of source `guided`, r = theta(y | prompt) / mu(y | prompt and hint), so the
denominator is `logp_mu`, of another context than `logp_old`; no clip there. The gradient of f by the log-prob is
g r / (r + g)^2, largest at r = g: tokens that the policy would hardly write without the hint are not drowned. Leaves
out: generating such rows (context `guide`), the mix of old wrong rows that the code has as an option.

Source: arXiv 2506.13923, code guide_rl read. Oracle r .05 .5 2, g .1: .333333 .833333 .952381.
"""

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import CLAMP_LOG_RATIO
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.contexts.hints import GUIDED
from assay_policy_training.plugins.objectives.ratio_clip import clipped_loss
from assay_policy_training.plugins.protocols import Scope, UpdateContext
from assay_policy_training.plugins.token_weights.entropy import quantile

GAMMA = "guide_gamma"
LEAST_GAMMA = 1e-4


def shaped_ratio(log_ratio: Tensor, gamma: Tensor | float) -> Tensor:
    """r / (r + gamma), of the shape of `log_ratio`; in (0, 1)."""
    ratio = log_ratio.clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO).exp()
    return ratio / (ratio + gamma)


class GuideLoss(RecipeSettings, section="objective"):
    """S9, token scope. `shape`: `constant` takes `gamma`; `quantile` the `level` quantile of old/mu over all guided
    tokens of the step (at least 1e-4); `power` takes r^`exponent`."""

    clip_low: Annotated[float, Ge(0)] = 0.2
    clip_high: Annotated[float, Ge(0)] = 0.2
    shape: Literal["constant", "quantile", "power"] = "constant"
    gamma: Annotated[float, Gt(0)] = 0.1
    level: Annotated[float, Gt(0), Lt(1)] = 0.9
    exponent: Annotated[float, Gt(0)] = 0.5
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "logp_mu"})

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        """Fixes g for the step; the batch is whole here."""
        gamma = self.gamma
        guided = batch.loss_mask & batch.of_source(GUIDED)[:, None]
        if self.shape == "quantile" and batch.logp_old is not None and guided.any():
            ratio = (batch.logp_old - batch.logp_mu)[guided].clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO).exp()
            gamma = max(LEAST_GAMMA, quantile(ratio, self.level))
        return batch.with_(extras={**batch.extras, GAMMA: torch.full(batch.mask.shape, gamma)})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        unguided, clipped, _ = clipped_loss(
            logp - context.logp_old,
            context.adv,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=None,
        )
        guided = context.given_rows.of_source(GUIDED).to(logp.device)[:, None]
        log_ratio = logp - context.logp_mu
        if self.shape == "power":
            shaped = (self.exponent * log_ratio.clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO)).exp()
        else:
            gamma = context.given_rows.extras.get(GAMMA)
            shaped = shaped_ratio(log_ratio, self.gamma if gamma is None else gamma.to(logp.device))
        loss = torch.where(guided, -context.adv * shaped, unguided)
        share = guided.expand_as(loss).float()
        return loss, {"guided_share": share, "clip_fraction": clipped.float() * (1 - share)}
