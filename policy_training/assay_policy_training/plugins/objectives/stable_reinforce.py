"""StableReinforce: the log-ratio is cut before exp, then clipped as in PPO.

The cut to [ln 1e-3, ln 1e3] keeps the exponential finite; for A < 0 PPO's maximum would still take a ratio of 1000, so
the dual clip stays on. Leaves out: the advantage filter (`modulators.three_sigma`).

Source: StableReinforce (R1-Reward) arXiv 2505.02835.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.objectives.ratio_clip import clipped_loss
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def pre_clipped(log_ratio: Tensor, largest: float = 1e3) -> Tensor:
    """log_ratio within +-ln(largest)."""
    return log_ratio.clamp(-math.log(largest), math.log(largest))


@dataclass(frozen=True)
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
