"""Advantages of the nodes of a tree, from the values that were backed up in it (sampler `tree_search`).

Tree-GRPO: a token's score is Q of its node, of nodes before the last one softly clipped to `most` tanh(Q /
temperature). Its advantage is that score, less the mean of the last nodes' scores in the group, over their deviation
(ddof 0); a group of one row is not normalised. Source: DeepSearch, arXiv 2509.25454, code smiles724/DeepSearch read
(`sibling_mean_std`). Oracle: last Q 1, -1, first node's Q 3: tanh 3 = .995055, mean 0, deviation 1.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView
from assay_policy_training.plugins.samplers.tree_search import NODE_VALUE, TreeSearch


class TreeValues(RecipeSettings, section="estimator"):
    """S6. `deviation`: whether to divide by it. Rows without a reward get 0, and are in no mean."""

    temperature: Annotated[float, Gt(0)] = 1.0
    most: Annotated[float, Gt(0)] = 1.0
    deviation: bool = True
    eps: Annotated[float, Gt(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for another sampler, and for shaping, which changes no value of a node."""
        if not isinstance(recipe.sampler, TreeSearch):
            raise BadInputError("the sampler tree_search gives the values", field="estimator")
        if recipe.shaping:
            raise BadInputError("nodes have their values from the search, whatever a row's reward is", field="shaping")

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        value, segment = batch.extras[NODE_VALUE].double(), batch.segment
        if segment is None:
            raise BadInputError("the rows have no turns: environment.kind", field="estimator")
        last = torch.where(batch.mask, segment, -1).amax(1, keepdim=True)
        score = torch.where(segment == last, value, self.most * torch.tanh(value / self.temperature))
        final = torch.where(batch.mask & (segment == last), value, -torch.inf).amax(1)
        count, mean, deviation, _ = group_moments(torch.where(batch.valid, final, torch.nan), batch.group, ddof=0)
        alone = count < 2
        score = score - torch.where(alone, 0.0, mean)[:, None]
        if self.deviation:
            score = score / torch.where(alone, 1.0, deviation + self.eps)[:, None]
        return torch.where(batch.mask & batch.valid[:, None], score, 0.0).float(), None
