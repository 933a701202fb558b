"""Advantages without a baseline: by the verdict, or the same for every row.

PSR, NSR and weighted REINFORCE: +`positive` for a correct row, -`negative` for a wrong one, whatever the rest of its
group did, so a single row is as good as many. PSR = (1, 0) and NSR = (0, 1), each with `filters.only_correct` or
`only_wrong`, whose rows alone count in denominators; W-REINFORCE = (.1, 1). Leaves out: dropping rows. Source: arXiv
2506.01347, code TianHongZXY/RLVR-Decomposed.

Constant: with `reinforce`, fine-tuning on the rows that the filters kept.
"""

from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import Finite, RecipeSettings
from assay_policy_training.plugins.estimators.group_relative import over_tokens
from assay_policy_training.plugins.filters.verdicts import verdicts
from assay_policy_training.plugins.protocols import RecipeView


def signed(verdict: Tensor, *, positive: float, negative: float) -> Tensor:
    """[B] `positive` where `verdict` is 1, -`negative` where it is 0, 0 where it is missing (NaN)."""
    advantage = torch.where(verdict == 1, positive, -negative).double()
    return torch.where(torch.isnan(verdict), 0.0, advantage)


class Signed(RecipeSettings, section="estimator"):
    """S6: `signed` on every token. `correct_above`: a row whose prompt has no verifier is correct above this reward."""

    positive: Annotated[float, Ge(0)] = 0.1
    negative: Annotated[float, Ge(0)] = 1.0
    correct_above: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.positive == self.negative == 0:
            raise BadInputError("positive and negative are both 0: nothing is learnt", field="estimator.positive")

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for shaping, which would change nothing but, by `correct_above`, some verdicts."""
        if recipe.shaping:
            raise BadInputError("signed advantages are of a row's verdict, whatever its reward is", field="shaping")

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        verdict = verdicts(batch, correct_above=self.correct_above)
        return over_tokens(signed(verdict, positive=self.positive, negative=self.negative), batch.mask), None


class Constant(RecipeSettings, section="estimator"):
    """S6: `value` on every token of a row that has a reward, 0 on the others."""

    value: Finite = 1.0

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for shaping, which would change nothing."""
        if recipe.shaping:
            raise BadInputError("a constant advantage is the same whatever the reward is", field="shaping")

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(torch.where(batch.valid, self.value, 0.0), batch.mask), None
