"""Rubric items with weights that shift away from what a group already meets.

Covers: the items of a rubric reward (`assay_serving.rubrics`) within each group, standardised, with saturated weights.
Leaves out: grading items, their plain sum, gates: the rubric reward's own.

Source: saturation after SA-MRPO and GDPO, as a reading of the saturation-aware aggregation that "Reinforcement Learning
with Rubric Anchors", arXiv 2508.12790, names and prints no equation of.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay.score import ScorePart
from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.shaping.outcomes import reward_part

#: A group's items closer together than this do not differ.
FLAT = 1e-9


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
    """S3: in place of the reward, the sum over the prompt's own items of how far each is satisfied, standardised within
    the group, by `saturated_weights` (`saturation` exponent; 0 = equal treatment, GDPO).

    `part`: the reward part that a rubric reward gave. A row whose rubric decided by a gate gets `gated`. A row without
    a reward, or with an item that failed, is missing and takes no part in its group's statistics.
    """

    part: str = "rubric"
    saturation: Annotated[float, Ge(0)] = 1.0
    gated: float = -1.0

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        present = batch.valid & ~reward_part(batch, self.part).isnan()
        rows = [self._items(batch, row) if bool(present[row]) else () for row in range(len(batch))]
        reward = torch.full((len(batch),), torch.nan, dtype=torch.float64)
        for number in set(batch.group.tolist()):
            members = [row for row in (batch.group == number).nonzero().flatten().tolist() if rows[row]]
            if members:
                reward[members] = self._group_rewards([rows[row] for row in members])
        return batch.with_(reward=reward)

    def _items(self, batch: RolloutBatch, row: int) -> tuple[ScorePart, ...]:
        """The items of a row, none where one of them has no grade."""
        score = batch.scores[row].get(self.part) if batch.scores else None
        if score is None or not score.parts:
            raise BadInputError(
                f"the part {self.part!r} has no items: give a rubric reward under that name "
                f"(assay serve RUBRIC.yaml; --reward {self.part}=URL)",
                field="shaping.part",
            )
        return score.parts if all(part.value is not None for part in score.parts) else ()

    def _group_rewards(self, rows: Sequence[tuple[ScorePart, ...]]) -> Tensor:
        """[n] float64 of the rows of one group, whose prompt has one rubric."""
        names = [part.name for part in rows[0]]
        if any([part.name for part in row] != names for row in rows):
            raise BadInputError("the responses to one prompt were judged by several rubrics", field="shaping.part")
        signs = torch.tensor([part.weight or 0.0 for part in rows[0]], dtype=torch.float64)
        grades = torch.tensor([[part.value for part in row] for row in rows], dtype=torch.float64)
        items, group = torch.where(signs < 0, 1 - grades, grades), torch.zeros(len(rows), dtype=torch.long)
        shares = saturated_weights(items, group, signs.abs(), self.saturation)
        rewards = (standardised_items(items, group) * shares).sum(1)
        closed = torch.tensor([any(part.gate for part in row) for row in rows])
        return torch.where(closed, self.gated, rewards)
