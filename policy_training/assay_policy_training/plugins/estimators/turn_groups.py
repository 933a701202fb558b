"""Advantages of episodes and of turns within a group: GiGPO, groups of turns taken in one state within a group of rows.

Covers: the row's reward less its group's mean, plus the discounted return of each turn less the mean over all turns
that the group's episodes took in the same state, which an environment names (`Observation.state`) or shows. A state
that is met once gives its turn nothing. Leaves out: states that are alike but not equal.

Source: GiGPO, arXiv 2505.10978, equations 3 and 5 to 8, as in langfengQ/verl-agent (`core_gigpo.py`, a copy read): the
return of a turn is what it and those after it earn, discounted by turn (.95); either level is divided by its deviation
(ddof 1) or by nothing; their sum, with a weight of 1. Departure: an episode counts once in its group's mean, as in
equation 3; the code counts it once a turn by default.

ARPO's hard attribution, arXiv 2507.19849 (notes on the paper; its code has the soft one, which is `grpo`): a token that
several rows of a group share has the mean of their advantages.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import ORIGIN, RolloutBatch, dr_grpo, group_index
from assay_policy_training.core.prompt import EPISODE
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.environments.record import turn_states
from assay_policy_training.plugins.estimators.gae import returns_to_go, turn_starts
from assay_policy_training.plugins.estimators.group_relative import grpo, over_tokens


def step_advantages(
    returns: Tensor, has: Tensor, states: Sequence[Sequence[str]], uid: Sequence[str], *, scale: str, eps: float
) -> Tensor:
    """[B,K] float64: of the `returns` [B,K] of turns, where the row `has` [B,K] one, each within the turns of its uid
    that began in the same state. `scale`: `none` or `deviation`."""
    keys = [f"{uid[row]} {states[row][turn]}" for row, turn in has.nonzero().tolist()]
    flat, group = returns[has], group_index(keys)
    within = dr_grpo(flat, group) if scale == "none" else grpo(flat, group, eps=eps)
    return torch.zeros(returns.shape, dtype=torch.float64).masked_scatter(has, within)


class Gigpo(RecipeSettings, section="estimator"):
    """S6: GRPO's advantage of the row plus `weight` x that of the turn among those taken in its state."""

    gamma: Annotated[float, Ge(0), Le(1)] = 0.95
    weight: Annotated[float, Ge(0)] = 1.0
    scale: Literal["none", "deviation"] = "none"
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        """Raises BadInputError for rows that are no episodes."""
        segment = batch.segment
        if segment is None or not all(EPISODE in item.meta for item in batch.items) or not batch.items:
            raise BadInputError("the rows are no episodes: environment.kind", field="estimator")
        mask = batch.mask & batch.valid[:, None]
        rows = (
            dr_grpo(batch.outcome, batch.group)
            if self.scale == "none"
            else grpo(batch.outcome, batch.group, eps=self.eps)
        )
        _, has = turn_starts(batch.token_reward, mask, segment)
        earned = torch.zeros(has.shape, dtype=torch.float64).scatter_add_(1, segment, batch.token_reward * mask)
        states = [turn_states(item.meta[EPISODE]) for item in batch.items]
        returns = returns_to_go(earned, has, gamma=self.gamma)
        by_turn = step_advantages(returns, has, states, batch.uid, scale=self.scale, eps=self.eps)
        return ((rows[:, None] + self.weight * by_turn.gather(1, segment)) * mask).float(), None


class SharedPrefix(RecipeSettings, section="estimator"):
    """S6: GRPO; tokens that several rows share have the mean of those rows' advantages (of the sampler `branching`)."""

    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        """Raises BadInputError for rows that no sampler branches."""
        origin = batch.extras.get(ORIGIN)
        if origin is None:
            raise BadInputError("the rows share nothing: sampler.kind branching", field="estimator")
        adv = over_tokens(grpo(batch.outcome, batch.group, ddof=self.ddof, eps=self.eps), batch.mask).double()
        mask = batch.mask & batch.valid[:, None]
        places = torch.stack(
            [batch.group[:, None].expand_as(origin), origin, torch.arange(origin.shape[1]).expand_as(origin)]
        )
        _, token = torch.unique(places[:, mask], dim=1, return_inverse=True)
        count = torch.bincount(token).double()
        means = torch.zeros_like(count).index_add(0, token, adv[mask]) / count
        return torch.zeros(mask.shape).masked_scatter(mask, means[token].float()), None
