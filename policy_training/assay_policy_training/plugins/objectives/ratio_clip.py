"""Policy objectives: the clipped ratio of PPO with asymmetric and dual clip, and plain REINFORCE.

Covers: per-token losses and what they report; PPO whose ratio is theta / mu ("bypass": the sampler's own log-probs
stand for old's, so that the ratio contains the correction of the sampler's mismatch). At r = 1 (the first optimiser
step on a batch) PPO's gradient is that of REINFORCE. Leaves out: sequence ratios (`sequence_ratio`), truncated ratios
(`truncated_ratio`), corrections for a stale sampler (`corrections`).

Sources: PPO arXiv 1707.06347; dual clip arXiv 1912.09729; clip-higher (DAPO) arXiv 2503.14476; GPG arXiv 2504.02546.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay_policy_training.core.ratios import CLAMP_LOG_RATIO
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
        torch.as_tensor(bound, dtype=ratio.dtype, device=ratio.device) for bound in (1 - clip_low, 1 + clip_high)
    )
    bounded = -advantage * ratio.clamp(low, high)
    loss = torch.maximum(free, bounded)
    clipped = bounded > free
    if dual_clip is None:
        return loss, clipped, torch.zeros_like(clipped)
    ceiling = -dual_clip * advantage
    dual = (advantage < 0) & (loss > ceiling)
    return torch.where(dual, ceiling, loss), clipped, dual


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Reinforce(RecipeSettings, section="objective"):
    """S9, token scope: -A log pi. For batches that get exactly one optimiser step, of the weights under training."""

    has_ratio: ClassVar[bool] = False
    scope: ClassVar[Scope] = "token"

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        return -context.adv * logp, {}


@dataclass(frozen=True)
class Gpg(Reinforce):
    """S9, token scope: GPG's loss is REINFORCE's; what is its own is a group's mean as the baseline."""
