"""The same advantage for every row: with `reinforce`, fine-tuning on the rows that the filters kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import Finite, RecipeSettings
from assay_policy_training.plugins.estimators.group_relative import over_tokens
from assay_policy_training.plugins.protocols import RecipeView


@dataclass(frozen=True)
class Constant(RecipeSettings, section="estimator"):
    """S6: `value` on every token of a row that has a reward, 0 on the others."""

    value: Finite = 1.0

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for shaping, which would change nothing."""
        if recipe.shaping:
            raise BadInputError("a constant advantage is the same whatever the reward is", field="shaping")

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(torch.where(batch.valid, self.value, 0.0), batch.mask), None
