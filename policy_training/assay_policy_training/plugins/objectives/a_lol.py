"""A-LoL: offline policy gradient whose only action is the whole response.

Covers: the loss -A clip(pi/ref) log pi with the ratio of whole responses as a constant weight, and the variants without
it or with the ratio of single tokens. Leaves out: the advantage (estimator `step_values` on rows of one step, negative
ones dropped), drawing rows by their advantage (replay `priority`: then the weight is the same for all).

Source: arXiv 2305.14718, code abaheti95/LoL-RL read. Oracle log-ratios .3 -.2: ratio e^.1 = 1.105171 inside the clip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt, Le
from torch import Tensor

from assay_policy_training.core.ratios import CLAMP_LOG_RATIO, row_sum
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def response_ratio(log_ratio: Tensor, mask: Tensor, clip: float) -> Tensor:
    """[b] pi/ref of whole responses, in [1 - clip, 1 + clip]; a constant."""
    total = row_sum(log_ratio.detach(), mask).clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO)
    return total.exp().clamp(1 - clip, 1 + clip)


@dataclass(frozen=True)
class Alol(RecipeSettings, section="objective"):
    """S9, sequence scope. `ratio`: of whole responses, of tokens, or none."""

    clip: Annotated[float, Gt(0), Le(1)] = 0.9
    ratio: Literal["sequence", "token", "none"] = "sequence"
    scope: ClassVar[Scope] = "sequence"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.ratio == "none" else frozenset({"logp_ref"})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        weight = torch.ones_like(logp)
        if self.ratio != "none":
            gap = logp.detach() - context.scored_logp_ref
            if self.ratio == "sequence":
                weight = response_ratio(gap, context.mask, self.clip)[:, None].expand_as(logp)
            else:
                weight = gap.clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO).exp().clamp(1 - self.clip, 1 + self.clip)
        return -context.adv * weight * logp, {"response_ratio": weight}
