"""Objectives on token ratios: clipped, gated, penalised, or without a ratio; per-token losses and what they report.

PPO with asymmetric and dual clip, plain REINFORCE, and PPO whose ratio is theta / mu ("bypass": the sampler's own
log-probs stand for old's, so that the ratio contains the correction of the sampler's mismatch). At r = 1 (the first
optimiser step on a batch) PPO's gradient is that of REINFORCE. Sources: PPO arXiv 1707.06347; dual clip arXiv
1912.09729; clip-higher (DAPO) arXiv 2503.14476; GPG arXiv 2504.02546.

StableReinforce: the log-ratio is cut before exp, then clipped as in PPO. The cut to [ln 1e-3, ln 1e3] keeps the
exponential finite; for A < 0 PPO's maximum would still take a ratio of 1000, so the dual clip stays on. Leaves out: the
advantage filter (`modulators.whitening`). Source: StableReinforce (R1-Reward) arXiv 2505.02835.

SAPO: a smooth gate on the ratio in place of a clip. f(r) = 4/tau sigmoid(tau (r - 1)), whose slope is 1 at r = 1 and
falls off on both sides; loss -A f(r), with a steeper gate for A <= 0. Source: SAPO arXiv 2511.20347, as in verl.

DRO: REINFORCE with a quadratic penalty towards the policy that generated the batch. Loss -(A log theta - beta/2 (log
theta - log old)^2); on the first optimiser step of a batch it is REINFORCE. Source: DRO arXiv 2405.19107, as in verl.
"""

import math
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import CLAMP_LOG_RATIO, log_ratio
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def clipped_loss(
    log_ratio: Tensor,
    advantage: Tensor,
    *,
    clip_low: float | Tensor,
    clip_high: float | Tensor,
    dual_clip: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Per-token loss, and where the upper/lower clip and where the dual clip decided it (bool), all of one shape.

    loss = max(-A r, -A clip(r, 1-clip_low, 1+clip_high)); for A < 0 at most -dual_clip A.
    """
    ratio = log_ratio.clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO).exp()
    free = -advantage * ratio
    low, high = (
        bound.to(ratio) if isinstance(bound, Tensor) else ratio.new_full((), bound)
        for bound in (1 - clip_low, 1 + clip_high)
    )
    bounded = -advantage * ratio.clamp(low, high)
    loss = torch.maximum(free, bounded)
    clipped = bounded > free
    if dual_clip is None:
        return loss, clipped, torch.zeros_like(clipped)
    ceiling = -dual_clip * advantage
    dual = (advantage < 0) & (loss > ceiling)
    return torch.where(dual, ceiling, loss), clipped, dual


class PpoClip(RecipeSettings, section="objective"):
    """S9, token scope: the clipped objective. `dual_clip`: None = off. `bypass`: the ratio is theta / mu."""

    clip_low: Annotated[float, Ge(0), Le(1)] = 0.2
    clip_high: Annotated[float, Ge(0)] = 0.2
    dual_clip: Annotated[float | None, Gt(1)] = 3.0
    bypass: bool = False
    scope: ClassVar[Scope] = "token"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"logp_mu" if self.bypass else "logp_old"})

    @property
    def corrects_behaviour(self) -> bool:
        """Whether the ratio already is to mu, so that no weights of a correction may be put on top."""
        return self.bypass

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        loss, clipped, dual = clipped_loss(
            logp - (context.logp_mu if self.bypass else context.logp_old),
            context.adv,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
        )
        return loss, {"clip_fraction": clipped.float(), "dual_clip_fraction": dual.float()}


class Reinforce(RecipeSettings, section="objective"):
    """S9, token scope: -A log pi. For batches that get exactly one optimiser step, of the weights under training."""

    has_ratio: ClassVar[bool] = False
    scope: ClassVar[Scope] = "token"

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        return -context.adv * logp, {}


class Gpg(Reinforce):
    """S9, token scope: GPG's loss is REINFORCE's; what is its own is a group's mean as the baseline."""


def pre_clipped(log_ratio: Tensor, largest: float = 1e3) -> Tensor:
    """log_ratio within +-ln(largest)."""
    return log_ratio.clamp(-math.log(largest), math.log(largest))


class StableReinforce(RecipeSettings, section="objective"):
    """S9, token scope. `largest`: bound of the ratio and of its inverse before PPO's clip."""

    largest: float = 1e3
    clip_low: Annotated[float, Ge(0), Le(1)] = 0.2
    clip_high: Annotated[float, Ge(0)] = 0.2
    dual_clip: Annotated[float | None, Gt(1)] = 3.0
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.largest > 1 + self.clip_high:
            raise BadInputError(f"must be above 1 + clip_high, not {self.largest}", field="objective.largest")

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        loss, clipped, dual = clipped_loss(
            pre_clipped(logp - context.logp_old, self.largest),
            context.adv,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
        )
        return loss, {"clip_fraction": clipped.float(), "dual_clip_fraction": dual.float()}


def gate(ratio: Tensor, tau: float | Tensor) -> Tensor:
    """f(r); same shape as `ratio`."""
    return 4 / tau * torch.sigmoid(tau * (ratio - 1))


class Sapo(RecipeSettings, section="objective"):
    """S9, token scope."""

    tau_pos: float = 1.0
    tau_neg: float = 1.05
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def __post_init__(self) -> None:
        if not 0 < self.tau_pos <= self.tau_neg:
            raise BadInputError(f"tau_pos {self.tau_pos} must be in (0, tau_neg {self.tau_neg}]", field="objective")

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        ratio = log_ratio(logp, context.logp_old).exp()
        tau = torch.where(context.adv > 0, self.tau_pos, self.tau_neg)
        return -context.adv * gate(ratio, tau), {}


class Dro(RecipeSettings, section="objective"):
    """S9, token scope."""

    beta: Annotated[float, Ge(0)] = 0.1
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        distance = log_ratio(logp, context.logp_old)
        return -(context.adv * logp - self.beta / 2 * distance**2), {}
