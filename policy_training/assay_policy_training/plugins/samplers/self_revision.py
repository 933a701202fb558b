"""Pairs of an answer and the policy's own improvement of it, as records that the context `revise` reads.

Covers: the first half of a group drawn from the prompt, the second half from the prompt with one answer of the first
half and the request to improve it; all of them then stand as answers to the prompt itself, with the tokens that were
drawn. Requests of the context for rows of such records are carried out as by the sampler `recorded`. Leaves out:
vLLM; the fitting (objective `srpo`).

Source: arXiv 2406.01660: y1 from the policy, y2 from the improving policy given y1.
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PLACE, POLICY, RECORD, RESPONSES, PromptItem
from assay_policy_training.core.sampling import Sampling, derived_seed, group_seeds
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.contexts.revise import REVISED, Revise
from assay_policy_training.plugins.protocols import RecipeView
from assay_policy_training.plugins.samplers.recorded import RecordedSampler
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


class SelfRevisionSampler:
    """S2 of answers and their improvements; `revise` words the request."""

    def __init__(self, policy: Policy, sampling: Sampling, revise: Revise) -> None:
        self.sampling, self.revise = sampling, revise
        self.drawn = TransformersSampler(policy, sampling)
        self.recorded = RecordedSampler(policy, sampling, {})

    @property
    def lacks(self) -> dict[str, str]:
        """`logp_mu` of an improvement is the policy's without the answer that it was drawn after."""
        return {"logp_mu": "a sampler whose rows were drawn from the contexts that they are trained in"}

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` rows of each item: new answers, or the records of an item that is to be revised."""
        self.drawn.sampling = self.recorded.sampling = self.sampling
        seeds = group_seeds(seed, len(items))
        if any(item.source == REVISED for item in items):
            return self.recorded.rollout(items, group_size, seed=seeds, version=version)
        half = group_size // 2
        first = self.drawn.rollout(items, half, seed=seeds, version=version)
        again = [self.revise.revising(item, answer) for item, answer in zip(first.items, first.responses, strict=True)]
        again_seeds = [derived_seed(group_seed, "revision", row) for group_seed in seeds for row in range(half)]
        second = self.drawn.rollout(again, 1, seed=again_seeds, version=version)
        with_records = []
        for number, item in enumerate(items):
            rows = range(number * half, (number + 1) * half)
            drawn = [(batch, row) for batch in (first, second) for row in rows]
            records = [
                {PLACE: position, "tokens": batch.tokens[row][batch.mask[row]].tolist(), "revision": batch is second}
                for position, (batch, row) in enumerate(drawn)
            ]
            with_records.append(replace(item, meta={**item.meta, RESPONSES: records}, source=RECORD))
        batch = self.recorded.rollout(with_records, group_size, seed=seeds, version=version)
        items_of_policy = tuple(replace(item, source=POLICY) for item in batch.items)
        return batch.with_(items=items_of_policy, source=(POLICY,) * len(batch))


class SelfRevision(RecipeSettings, section="sampler"):
    """S2. `request`: the user's turn after the answer to be improved, as in the context `revise`."""

    request: str = "Improve your answer."

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for groups that do not halve, and without the context that reads the records."""
        if recipe.sampling.group_size % 2:
            raise BadInputError("one half answers, the other improves: an even number", field="sampling.group_size")
        if not isinstance(recipe.contexts, Revise) or recipe.contexts.request != self.request:
            raise BadInputError("needs the context revise, with the same request", field="sampler.request")

    def open(self, policy: Policy, sampling: Sampling) -> SelfRevisionSampler:
        return SelfRevisionSampler(policy, sampling, Revise(self.request))
