"""Groups whose last rows come from elsewhere than the policy: recorded responses, or a mixture with the reference.

Covers: dividing a group between two samplers, own rows first, with sources that differ. Leaves out: advantages of such
groups (`estimators.own_rows`), whole groups of recorded responses (`recorded`), vLLM.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, merge_batches
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, derived_seed, group_seeds
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView, Sampler
from assay_policy_training.plugins.samplers.recorded import RecordedSampler
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

OPPONENT = "opponent"


class MixedGroupSampler:
    """S2: the first rows of each group by `first`, the last `count` by `last`."""

    def __init__(self, first: Sampler, last: Sampler, count: int) -> None:
        self.first, self.last, self.count = first, last, count
        self.sampling = first.sampling

    @property
    def lacks(self) -> Mapping[str, str]:
        lacks: Mapping[str, str] = getattr(self.last, "lacks", {})
        return lacks

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` rows of each item, `count` of them by `last`."""
        self.first.sampling = self.last.sampling = self.sampling
        seeds, drawn = group_seeds(seed, len(items)), group_size - self.count
        first_rows = self.first.rollout(items, drawn, seed=seeds, version=version)
        other_seeds = [derived_seed(group_seed, "others") for group_seed in seeds]
        last_rows = self.last.rollout(items, self.count, seed=other_seeds, version=version)
        batch = merge_batches([first_rows.with_(segment=None), last_rows.with_(segment=None)])
        order = [
            row
            for group in range(len(items))
            for row in (
                *range(group * drawn, (group + 1) * drawn),
                *range(len(first_rows) + group * self.count, len(first_rows) + (group + 1) * self.count),
            )
        ]
        return batch.select(order)


class OpponentSampler(TransformersSampler):
    """S2: rows that others are compared with, without a gradient of their own."""

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        batch = super().rollout(items, group_size, seed=seed, version=version)
        return batch.with_(source=(OPPONENT,) * len(batch), loss_mask=torch.zeros_like(batch.loss_mask))


class GeometricMixture(RecipeSettings, section="sampler"):
    """S2. `count`: rows of each group, of the source `opponent`, drawn token by token from the normalised
    pi^(1 - mixture) ref^mixture. 0 = from the policy, 1 = from the reference."""

    count: Annotated[int, Ge(1)] = 1
    mixture: Annotated[float, Ge(0), Le(1)] = 0.5
    needs: ClassVar[frozenset[str]] = frozenset({"logp_ref"})

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError where a group would have no row of the policy's own."""
        check_count(self.count, recipe)

    def open(self, policy: Policy, sampling: Sampling) -> MixedGroupSampler:
        opponents = OpponentSampler(policy, sampling, mixture=self.mixture)
        return MixedGroupSampler(TransformersSampler(policy, sampling), opponents, self.count)


class Demonstrations(RecipeSettings, section="sampler"):
    """S2. `count`: rows of each group that are responses recorded with the prompt, of the source `recorded`."""

    count: Annotated[int, Ge(1)] = 1

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError where a group would have no row of the policy's own."""
        check_count(self.count, recipe)

    def open(self, policy: Policy, sampling: Sampling) -> MixedGroupSampler:
        recorded = RecordedSampler(policy, sampling, {})
        return MixedGroupSampler(TransformersSampler(policy, sampling), recorded, self.count)


def check_count(count: int, recipe: RecipeView) -> None:
    """Raises BadInputError unless a group has more than `count` rows."""
    if count >= recipe.sampling.group_size:
        raise BadInputError(f"must be below the group's {recipe.sampling.group_size} rows", field="sampler.count")
