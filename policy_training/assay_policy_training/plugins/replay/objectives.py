"""RECAP: rows of several objectives in one batch, weighted by how fast each one still moves.

Covers: an objective's rewards over two windows of steps, lambda_k = K softmax(s / T) with s = mu_now / mu_before +
sigma_now / (mu_now + mu_before), advantages multiplied so that the loss is (1/K) sum_k lambda_k L_k with a denominator
for each objective. The tag of a row is an entry of its prompt; which prompts a step draws is the prompt source's matter
(`prompts.streams`). Leaves out: replayed rows of earlier steps (`recent`).

Source: "Beyond Reasoning Gains", arXiv 2510.21978 (detailed notes); the length of the window is ours. Oracle mu .2 .9,
before .2 1, sigma .01 .3: s 1.025 1.057895; lambda at T 5 .996711 1.003289, at T .5 .967117 1.032883.
"""

import math
from collections.abc import Sequence
from dataclasses import field
from statistics import fmean, pstdev
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.prompts.streams import tag_of
from assay_policy_training.plugins.protocols import RecipeView

LEAST = 1e-6  #: a mean nearer to 0 than this would make its ratio explode


def movement(now: float, before: float, deviation: float) -> float:
    """s_k = c_k + i_k of one objective. Means are taken by size, at least 1e-6: a ratio of signs is meaningless."""
    level, level_before = max(abs(now), LEAST), max(abs(before), LEAST)
    return level / level_before + deviation / (level + level_before)


def objective_weights(movements: Sequence[float], temperature: float) -> list[float]:
    """K softmax(s / T): K numbers whose mean is 1."""
    top = max(movements)
    weights = [math.exp((value - top) / temperature) for value in movements]
    return [len(weights) * weight / sum(weights) for weight in weights]


class Objectives(StatefulSettings, section="replay"):
    """S15. `window`: steps; `temperature`: T; `key`: the prompts' entry that names their objective; `denominator`: what
    the recipe's aggregation counts."""

    window: Annotated[int, Ge(1)] = 10
    temperature: Annotated[float, Gt(0)] = 5.0
    key: str = "source"
    denominator: Literal["rows", "tokens"] = "rows"
    history: dict[str, list[float]] = field(init=False, default_factory=dict)  #: mean reward by step, last 2 windows
    weights: dict[str, float] = field(init=False, default_factory=dict)  #: of the last batch

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError where the aggregation divides by something else."""
        mode = getattr(recipe.aggregation, "mode", None)
        if mode is not None and (mode == "token-mean") != (self.denominator == "tokens"):
            raise BadInputError(f"not what aggregation {mode} divides by", field="replay.denominator")

    def mix(self, batch: RolloutBatch) -> RolloutBatch:
        """The batch with `adv` weighted by objective. Before an objective has two windows its movement counts as 1."""
        adv, tags = batch.estimated_adv, [tag_of(item, self.key) for item in batch.items]
        names = sorted(set(tags))
        of = {name: torch.tensor([tag == name for tag in tags]) for name in names}
        for name in names:
            earned = batch.outcome[of[name] & batch.valid]
            if len(earned):
                self.history[name] = [*self.history.get(name, []), float(earned.mean())][-2 * self.window :]
        weights = objective_weights([self._movement(name) for name in names], self.temperature)
        self.weights = dict(zip(names, weights, strict=True))
        amount = batch.loss_mask.sum(1) if self.denominator == "tokens" else batch.loss_mask.any(1).long()
        factor = torch.ones(len(batch))
        for name in names:
            amount_of = int(amount[of[name]].sum())
            if amount_of:
                factor[of[name]] = self.weights[name] * float(amount.sum()) / (len(names) * amount_of)
        return batch.with_(adv=adv * factor[:, None])

    def _movement(self, name: str) -> float:
        seen = self.history.get(name, [])
        if len(seen) < 2 * self.window:
            return 1.0
        before, now = seen[: self.window], seen[self.window :]
        return movement(fmean(now), fmean(before), pstdev(now))
