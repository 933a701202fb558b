"""Objectives with one ratio a row: GSPO and GMPO.

Covers: both from token log-ratios d_t = log theta - log old over a row's own tokens.

    GSPO   s = exp(mean_t d_t), clipped like PPO's ratio; written with sg(s) theta_t / sg(theta_t) on each token, so
           that each may have its own advantage; for equal ones the gradient is that of s
    GMPO   the geometric mean of token ratios that are clipped one by one, on the side that makes the loss larger

Both are means over rows of means over tokens, so they go with `seq-mean-token-mean`; averaged over all tokens instead
they are neither. Leaves out: rejecting rows (`corrections`).

Sources: GSPO arXiv 2507.18071; GMPO arXiv 2507.20673; both as in verl.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import log_ratio, row_mean
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.objectives.ratio_clip import clipped_loss
from assay_policy_training.plugins.protocols import RecipeView, Scope, UpdateContext

MEAN = "seq-mean-token-mean"
LARGEST_MEAN = 10.0  #: bound of a row's mean log-ratio before exp


def sequence_ratio(ratio: Tensor, mask: Tensor) -> Tensor:
    """[B] s = exp(mean_t d_t); `ratio` [B,T] holds d."""
    return row_mean(ratio, mask).clamp(max=LARGEST_MEAN).exp()


def gspo_loss(
    logp: Tensor, logp_old: Tensor, advantage: Tensor, mask: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Per-token loss and where the clip decided it (bool); all [B,T]."""
    mean = row_mean((logp - logp_old).detach(), mask).clamp(max=LARGEST_MEAN)
    token = mean[:, None] + logp - logp.detach()
    loss, clipped, _ = clipped_loss(token, advantage, clip_low=clip_low, clip_high=clip_high, dual_clip=None)
    return loss, clipped


def gmpo_ratio(ratio: Tensor, advantage: Tensor, mask: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """[B] exp(mean_t of the clipped d_t): for A > 0 min(d, clip(d)), for A < 0 max(d, clip(d))."""
    sign = advantage.sign()
    clipped = ratio.clamp(-clip_low, clip_high)
    return row_mean(sign * torch.minimum(sign * ratio, sign * clipped), mask).exp()


def _check_mean_over_rows(name: str, recipe: RecipeView) -> None:
    mode = getattr(recipe.aggregation, "mode", MEAN)
    if mode != MEAN:
        raise BadInputError(
            f"{name} weighs rows equally; with {mode} it is another objective: use {MEAN}", field="aggregation.mode"
        )
    if any(getattr(plugin, "weighs", True) and plugin.level == "token" for plugin in recipe.corrections):  # type: ignore[attr-defined]
        raise BadInputError(f"{name} has one ratio a row: correct by the row, e.g. sequence_tis", field="corrections")
    if recipe.token_weights:
        raise BadInputError(f"{name} has one ratio a row: tokens cannot be weighed", field="token_weights")


class Gspo(RecipeSettings, section="objective"):
    """S9, sequence scope. About 15% of tokens clipped is normal at these narrow bounds."""

    clip_low: Annotated[float, Ge(0), Le(1)] = 3e-4
    clip_high: Annotated[float, Ge(0)] = 4e-4
    scope: ClassVar[Scope] = "sequence"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def check_recipe(self, recipe: RecipeView) -> None:
        _check_mean_over_rows("GSPO", recipe)

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        loss, clipped = gspo_loss(
            logp, context.logp_old, context.adv, context.mask, clip_low=self.clip_low, clip_high=self.clip_high
        )
        return loss, {"clip_fraction": clipped.float()}


class Gmpo(RecipeSettings, section="objective"):
    """S9, sequence scope. Bounds are of log-ratios: .4 lets a token's ratio be in [.67, 1.49]."""

    clip_low: Annotated[float, Ge(0)] = 0.4
    clip_high: Annotated[float, Ge(0)] = 0.4
    scope: ClassVar[Scope] = "sequence"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def check_recipe(self, recipe: RecipeView) -> None:
        _check_mean_over_rows("GMPO", recipe)

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        """The row's loss -A exp(mean d) on each of its tokens, A its mean advantage."""
        ratio = log_ratio(torch.where(context.loss_mask, logp, logp.detach()), context.logp_old)
        row = gmpo_ratio(ratio, context.adv, context.mask, clip_low=self.clip_low, clip_high=self.clip_high)
        loss = -(row_mean(context.adv, context.mask) * row)[:, None].expand(ratio.shape)
        outside = (ratio < -self.clip_low) | (ratio > self.clip_high)
        return loss, {"clip_fraction": outside.float()}
