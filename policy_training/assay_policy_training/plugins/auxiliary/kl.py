"""The KL loss: an auxiliary loss made of a per-token estimate of KL(theta || ref).

Covers: the loss. Leaves out: the estimators and what their gradients are (`core.ratios`), the full KL over the
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import KL_ESTIMATORS, kl_estimate
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext


@dataclass(frozen=True)
class KlLoss(RecipeSettings, section="kl"):
    """S11: coefficient x KL to the reference, aggregated like the policy loss."""

    coefficient: Annotated[float, Ge(0)] = 0.001
    estimator: str = "k3"
    name: ClassVar[str] = "kl"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_ref"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator not in KL_ESTIMATORS:
            raise BadInputError(
                f"unknown KL estimator {self.estimator!r}; one of {', '.join(KL_ESTIMATORS)}", field="kl.estimator"
            )

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        """[B,T] unscaled loss matrix."""
        return kl_estimate(self.estimator, logp, context.scored_logp_ref)
