"""Constrained RLHF's mixture of advantages: one for each reward, one for the KL, weighed by learned multipliers.

Source: "Confronting Reward Model Overoptimization with Constrained RLHF", arXiv 2310.04373. A = (N - sum g(l)) A_KL +
sum g(l_i) A_i, every advantage standardised first: as rewards reach their thresholds, staying near the reference gains
weight. The paper takes each advantage from a separate value head; here the baseline of a reward is its group's mean,
that of the KL the batch's. Leaves out: the multipliers' own movement (`compositions.constrained`).
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, dr_grpo
from assay_policy_training.plugins.compositions.constrained import Multipliers
from assay_policy_training.plugins.compositions.weighted import named_part
from assay_policy_training.plugins.estimators.gae import returns_to_go
from assay_policy_training.plugins.modulators.whitening import whiten
from assay_policy_training.plugins.protocols import RecipeView


def mixture(advantages: Sequence[Tensor], kl_advantage: Tensor, weights: Sequence[float]) -> Tensor:
    """(N - sum g) A_KL + sum g_i A_i, all of one shape."""
    weighted = torch.stack([weight * advantage for weight, advantage in zip(weights, advantages, strict=True)]).sum(0)
    return (len(weights) - sum(weights)) * kl_advantage + weighted


class ConstrainedMixture(Multipliers, section="estimator"):
    """S6: `mixture` on every token. A_i: part less its group's mean, whitened over the batch's tokens. A_KL: the sum of
    negative log-ratios to the reference from each token on, whitened likewise. Rows without a reward get 0.
    """

    group_relative: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "logp_ref"})

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for shaping, which would change nothing."""
        if recipe.shaping:
            raise BadInputError("the mixture reads the raw parts, which no shaping changes", field="shaping")

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        mask = batch.mask & batch.counted[:, None]
        distance = (batch.scored_logp_ref - batch.scored_logp_old).double() * mask
        of_kl = whiten(returns_to_go(distance, mask, gamma=1.0), mask)
        of_parts = []
        for name in self.thresholds:
            part = torch.where(batch.valid, named_part(batch.r_parts, name, field=self.section), torch.nan)
            of_parts.append(whiten(dr_grpo(part, batch.group)[:, None] * mask, mask))
        return mixture(of_parts, of_kl, list(self.weights.values())).float(), None
