"""Best-of-n: of n samples the one with the highest reward. n = 1 is the policy itself."""

import math
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge

from assay.statistics.best_of_n import kl_best_of
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.decoding.kind import DecodedResponse, DecodePrompts, DecodingInputs, RewardedText
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


class BestOfN(RecipeSettings, section="decoder"):
    """A sample without a reward is never chosen, unless none has one. `kl` is `kl_best_of` of the samples that have
    one: a bound, far above the truth where many rewards are equal (`kl_with_ties`)."""

    n: Annotated[int, Ge(1)] = 16

    @property
    def rows_a_response(self) -> int:
        return self.n

    def open(self, inputs: DecodingInputs) -> DecodePrompts:
        sampler = TransformersSampler(inputs.policy, inputs.sampling)

        def decode(items: Sequence[PromptItem], seeds: Sequence[int]) -> list[DecodedResponse]:
            batch = sampler.rollout(items, self.n, seed=seeds, version=0)
            texts = inputs.rewarded(batch.items, sampled_texts(batch))
            groups = [texts[start : start + self.n] for start in range(0, len(texts), self.n)]
            return [self._chosen(group) for group in groups]

        return decode

    def _chosen(self, group: Sequence[RewardedText]) -> DecodedResponse:
        rewards = tuple(text.reward for text in group)
        kl = kl_best_of(max(1, sum(not math.isnan(reward) for reward in rewards)))
        best = max(group, key=lambda text: text.rank)
        return DecodedResponse(best, kl, "bound", sum(text.tokens for text in group), len(group), rewards)


def sampled_texts(batch: RolloutBatch) -> list[RewardedText]:
    """The rows of a batch, without rewards yet."""
    rows = zip(batch.responses, batch.lengths.tolist(), batch.finished.tolist(), strict=True)
    return [RewardedText(text, tokens, finished) for text, tokens, finished in rows]
