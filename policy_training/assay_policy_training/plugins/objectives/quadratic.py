"""DRO: REINFORCE with a quadratic penalty towards the policy that generated the batch.

Loss -(A log theta - beta/2 (log theta - log old)^2); on the first optimiser step of a batch it is REINFORCE.
Source: DRO arXiv 2405.19107, as in verl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import log_ratio
from assay_policy_training.plugins.protocols import Scope, UpdateContext


@dataclass(frozen=True)
class Dro:
    """S9, token scope."""

    beta: float = 0.1
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def __post_init__(self) -> None:
        if not self.beta >= 0:
            raise BadInputError(f"must not be negative, not {self.beta}", field="objective.beta")

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        distance = log_ratio(logp, context.logp_old)
        return -(context.adv * logp - self.beta / 2 * distance**2), {}
