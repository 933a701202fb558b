"""Samplers of a recipe that play the episodes of an environment their own way, with transformers' generation.

    class Branching(EpisodePlan, RecipeSettings, section="sampler"):
        plays: ClassVar[Any] = BranchingEpisodes

Leaves out: what such a class of episodes does (`branching`, `forced_answers`, `tree_search`).
"""

from typing import Any, ClassVar

from assay.errors import BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.protocols import RecipeView, Sampler
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


class EpisodePlan:
    """S2, in an environment only. `plays`: the sampler of episodes, which takes what `EpisodeSampler` does and `plan`,
    these settings."""

    plays: ClassVar[Any]

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError without an environment."""
        if recipe.environment is None:
            raise BadInputError("it plays in turns, in an environment: environment.kind", field="sampler.kind")

    def open(self, policy: Policy, sampling: Sampling) -> "PlannedSampler":
        return PlannedSampler(policy, sampling, self)


class PlannedSampler(TransformersSampler):
    """Generates for a plan. See `PlaysEpisodes`."""

    def __init__(self, policy: Policy, sampling: Sampling, plan: EpisodePlan) -> None:
        super().__init__(policy, sampling)
        self._plan = plan

    def in_environment(self, environment: Environment, limits: EpisodeLimits) -> Sampler:
        sampler: Sampler = self._plan.plays(self.policy, self, self.sampling, environment, limits, plan=self._plan)
        return sampler
