"""Offline rows weighted by the return of the whole trajectory that each of them is.

Covers: w_i proportional to exp(G_i / alpha), with a mean of 1 over the tokens of the batch, so that a mean over tokens
is one over a data set resampled in favour of good trajectories. G_i is the row's reward on the scale of the batch (its
range is 1), less the mean of its prompt's rows where prompts differ in difficulty (`baseline`). Every token of a
response counts by the response's return, not by its own step. Leaves out: drawing rows (`recent.PriorityReplay`).

Source: "Harnessing Mixed Offline Reinforcement Learning Datasets via Trajectory Weighting", arXiv 2306.13085
(abstract); the form of the weights is recalled. Oracle returns 0 .5 1 of 1 2 1 tokens, alpha .5: .289318 .786448
2.137787.
"""

from typing import Annotated, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, dr_grpo
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView


def trajectory_weights(returns: Tensor, tokens: Tensor, alpha: float) -> Tensor:
    """[B] float64 weights of mean 1 over `tokens` [B]; 0 where the return is missing. All equal returns weigh 1."""
    present = ~returns.isnan()
    if not bool((tokens[present] > 0).any()):
        return torch.zeros_like(returns)
    known = returns[present]
    spread = float(known.max() - known.min())
    scaled = (known - known.max()) / spread if spread > EQUAL_RANGE else torch.zeros_like(known)
    weight = (scaled / alpha).exp()
    share = tokens[present].double()
    return torch.zeros_like(returns).masked_scatter(present, weight * share.sum() / (share * weight).sum())


class TrajectoryWeights(RecipeSettings, section="replay"):
    """S15. `alpha`: small = the best trajectories only. `baseline`: `group` takes the mean of the prompt's rows off."""

    alpha: Annotated[float, Gt(0)] = 0.1
    baseline: Literal["none", "group"] = "group"

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for a mean that is not over tokens, which the weights are scaled for."""
        if getattr(recipe.aggregation, "mode", "token-mean") != "token-mean":
            raise BadInputError("weights are of tokens: use token-mean", field="aggregation.mode")

    def mix(self, batch: RolloutBatch) -> RolloutBatch:
        """The batch with `adv` times the weight of its row."""
        returns = batch.outcome.double()
        if self.baseline == "group":
            returns = dr_grpo(returns, batch.group).masked_fill(returns.isnan(), torch.nan)
        weight = trajectory_weights(returns, batch.loss_mask.sum(1), self.alpha)
        return batch.with_(adv=batch.estimated_adv * weight[:, None].float())
