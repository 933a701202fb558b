"""Samples rows in proportion to their advantage, instead of weighting by it.

Covers: A-LoL's priority sampling: B draws with replacement among the rows of positive advantage, each of which then
counts the same, the mean of those advantages; weighting a row by an advantage that it was drawn by would square it. A
row drawn n times is kept once with n times the weight, which is the same gradient under an aggregation that takes the
mean over rows. Leaves out: memory across steps (`recent`).

Source: arXiv 2305.14718, code abaheti95/LoL-RL read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.protocols import RecipeView


@dataclass
class PriorityReplay(StatefulSettings, section="replay"):
    """S15. `seed` and the number of the draw decide the rows."""

    seed: int = 0
    draws: int = field(init=False, default=0)

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for the mean over all tokens, which is no mean over rows."""
        if getattr(recipe.aggregation, "mode", None) == "token-mean":
            raise BadInputError("rows are drawn, so take a mean over rows", field="aggregation.mode")

    def mix(self, batch: RolloutBatch) -> RolloutBatch:
        """The rows with other advantages; the same batch where none has a positive one."""
        weight = batch.estimated_adv.double().clamp(min=0).sum(1) / batch.lengths.clamp(min=1)
        self.draws += 1
        if not bool((weight > 0).any()):
            return batch
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.draws)
        rows = torch.multinomial(weight, len(batch), replacement=True, generator=generator)
        times = torch.bincount(rows, minlength=len(batch)).double()
        mean = float(weight[weight > 0].mean())
        return batch.with_(adv=(batch.mask * (times * mean)[:, None]).float())
