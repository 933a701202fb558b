"""RL-PLUS's exploration advantage: tokens that the policy is sure of already count less.

Covers: A (1 - pi)^gamma, pi the old policy's probability of the token. The paper means it for rows from elsewhere
(`sources`). Leaves out: mixing such rows (`replay`), their importance ratio.

Source: arXiv 2508.00222, from its abstract and recalled.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


def exploration_advantage(adv: Tensor, logp: Tensor, *, gamma: float = 2.0) -> Tensor:
    """A (1 - pi)^gamma, elementwise."""
    return adv * (1 - logp.exp()).clamp(min=0.0) ** gamma


class Exploration(RecipeSettings, section="modulators"):
    """S7: `exploration_advantage` on rows of these `sources`; none named = every row."""

    gamma: Annotated[float, Ge(0)] = 2.0
    sources: tuple[str, ...] = ()
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def modulate(self, batch: RolloutBatch) -> Tensor:
        rows = batch.of_source(*self.sources) if self.sources else torch.ones(len(batch), dtype=torch.bool)
        adv = batch.estimated_adv
        return torch.where(rows[:, None], exploration_advantage(adv, batch.scored_logp_old, gamma=self.gamma), adv)
