"""Rubrics: weighted items with vetoes, and weights that shift away from items that a group already meets.

Source: "Reinforcement Learning with Rubric Anchors", arXiv 2508.12790. The weighted sum is the paper's; the veto to 0
and the saturation are our reading (the paper prints no equations), the latter after SA-MRPO and GDPO. Each item is a
reward part in [0, 1]: a model's, a principle's or a verifier's. Leaves out: writing rubrics, judging items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.shaping.outcomes import reward_part

#: A group's items closer together than this do not differ.
FLAT = 1e-9


def weighted_items(items: Tensor, weights: Tensor) -> Tensor:
    """[B] sum of weight x item over the sum of the weights, of `items` [B,K] and `weights` [K] or [B,K]."""
    return (items * weights).sum(-1) / weights.sum(-1)


def saturated_weights(items: Tensor, group: Tensor, weights: Tensor, exponent: float) -> Tensor:
    """[B,K] weights of each row's group: w (1 - mean of the item in the group)^exponent, summing to 1.

    `items` [B,K] in [0, 1]. Where every item is met by all, the given weights stay.
    """
    means = torch.stack([group_moments(column, group, ddof=0)[1] for column in items.unbind(1)], 1)
    remaining = weights * (1 - means.clamp(0, 1)) ** exponent
    total = remaining.sum(1, keepdim=True)
    return torch.where(total > 0, remaining / total.clamp(min=1e-300), weights / weights.sum())


def standardised_items(items: Tensor, group: Tensor) -> Tensor:
    """[B,K] each item less its group's mean, over the group's deviation (population); 0 where the group is flat."""
    columns = []
    for column in items.unbind(1):
        _, mean, deviation, spread = group_moments(column, group, ddof=0)
        scaled = torch.where(spread > FLAT, (column - mean) / deviation, 0.0)
        columns.append(torch.where(column.isnan(), torch.nan, scaled))
    return torch.stack(columns, 1)


class Rubric(RecipeSettings, section="shaping"):
    """S3: in place of the reward, `weights` part -> weight. `vetoes` part -> the least it must reach; a veto that fails
    makes the reward `vetoed`. A missing item, or a missing veto, makes the row missing: a judge that gives no answer
    never counts as 0.

    `saturation` exponent: then the reward is the sum of group-standardised items by `saturated_weights` (0 = equal
    treatment, GDPO); None = the plain weighted mean.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    vetoes: Mapping[str, float] = field(default_factory=dict)
    saturation: Annotated[float | None, Ge(0)] = None
    vetoed: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weights or not all(weight > 0 for weight in self.weights.values()):
            raise BadInputError("needs at least one item, each of a weight above 0", field="shaping.weights")

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        items = torch.stack([reward_part(batch, name) for name in self.weights], 1)
        items = torch.where(batch.valid[:, None], items, torch.nan)
        weights = torch.tensor(list(self.weights.values()), dtype=torch.float64)
        if self.saturation is None:
            reward = weighted_items(items, weights)
        else:
            # A row that lacks an item takes no part in its group's statistics.
            complete = torch.where(items.isnan().any(1, keepdim=True), torch.nan, items)
            rubric_parts = saturated_weights(complete, batch.group, weights, self.saturation)
            reward = (standardised_items(complete, batch.group) * rubric_parts).sum(1)
        return batch.with_(reward=self._with_vetoes(reward, batch, list(self.vetoes)))

    def _with_vetoes(self, reward: Tensor, batch: RolloutBatch, names: Sequence[str]) -> Tensor:
        for name in names:
            value = reward_part(batch, name)
            failed = torch.where(reward.isnan(), torch.nan, self.vetoed)
            reward = torch.where(value >= self.vetoes[name], reward, failed)
            reward = torch.where(value.isnan(), torch.nan, reward)
        return reward
