"""DRO: REINFORCE with a quadratic penalty towards the policy that generated the batch.

Loss -(A log theta - beta/2 (log theta - log old)^2); on the first optimiser step of a batch it is REINFORCE.
Source: DRO arXiv 2405.19107, as in verl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from assay_policy_training.core.ratios import log_ratio
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import Scope, UpdateContext


@dataclass(frozen=True)
class Dro(RecipeSettings, section="objective"):
    """S9, token scope."""

    beta: Annotated[float, Ge(0)] = 0.1
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        distance = log_ratio(logp, context.logp_old)
        return -(context.adv * logp - self.beta / 2 * distance**2), {}
