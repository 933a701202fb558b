"""Best-of-n: of n samples the one with the highest reward. n = 1 is the policy itself."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Ge

from assay.statistics.best_of_n import kl_best_of
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.decoding.kind import DecodedResponse, DecodingInputs, RewardedText
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


class BestOfN(RecipeSettings, section="decoder"):
    """A sample without a reward is never chosen, unless none has one. `kl` is `kl_best_of` of the samples that have
    one: a bound, far above the truth where many rewards are equal (`kl_with_ties`)."""

    n: Annotated[int, Ge(1)] = 16

    def open(self, inputs: DecodingInputs) -> "BestOfNDecoder":
        return BestOfNDecoder(self.n, inputs)


class BestOfNDecoder:
    def __init__(self, n: int, inputs: DecodingInputs) -> None:
        self.inputs, self.rows_a_response = inputs, n
        self.facts: dict[str, Any] = {}
        self.sampler = TransformersSampler(inputs.policy, inputs.sampling)

    def decode(self, items: Sequence[PromptItem], seeds: Sequence[int]) -> list[DecodedResponse]:
        n = self.rows_a_response
        batch = self.sampler.rollout(items, n, seed=seeds, version=0)
        texts = self.inputs.rewarded(batch.items, sampled_texts(batch))
        decoded = []
        for start in range(0, len(texts), n):
            group = texts[start : start + n]
            chosen = max(group, key=lambda text: text.rank)
            rewards = tuple(text.reward for text in group)
            kl = kl_best_of(max(1, sum(not math.isnan(text.reward) for text in group)))
            decoded.append(DecodedResponse(chosen, kl, "bound", sum(text.tokens for text in group), n, rewards))
        return decoded


def sampled_texts(batch: RolloutBatch) -> list[RewardedText]:
    """The rows of a batch, without rewards yet."""
    rows = zip(batch.responses, batch.lengths.tolist(), batch.finished.tolist(), strict=True)
    return [RewardedText(text, tokens, finished) for text, tokens, finished in rows]
