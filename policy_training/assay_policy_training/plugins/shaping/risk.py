"""A utility that dislikes spread: the mean of the reward less a multiple of its variance over the group.

Covers: R - risk (R - m)^2, m the mean of the group's other rows. m does not depend on the row, so the policy gradient
of this reward is, in expectation, that of E[R] - risk Var[R]: grad Var = E[(R - E[R])^2 grad log pi]. Leaves out: the
opponents over whose play the paper's players take the variance; here it is the policy's own spread on a prompt.

Source: "A Game-Theoretic Framework for Managing Risk in Multi-Agent Systems", arXiv 2205.15434 (abstract); the form of
the utility is recalled. Oracle rewards 1 0 0, risk .5: .5 -.125 -.125.
"""

from typing import Annotated

from annotated_types import Ge

from assay_policy_training.core.batch import RolloutBatch, rloo
from assay_policy_training.core.settings import RecipeSettings


class VariancePenalty(RecipeSettings, section="shaping"):
    """S3. `risk`: of the variance in one unit of reward; 0 = none. A row alone in its group has no penalty."""

    risk: Annotated[float, Ge(0)] = 0.5

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        reward = batch.scored_reward
        return batch.with_(reward=reward - self.risk * rloo(reward, batch.group) ** 2)
