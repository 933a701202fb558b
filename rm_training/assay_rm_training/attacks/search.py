"""Attacks that the reward itself drives: words found by greedy coordinate search, and the best of a policy's samples.

The words are one text for all prompts, found on some of them and measured on the others: what it says has nothing to do
with any prompt. A policy's best sample may well be good: whether it is wrong is said by a second reward (`run`).
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from assay import ids
from assay.domain import PreferencePair, response_text
from assay.errors import BadInputError
from assay.settings import CheckedSettings
from assay_rm_training.attacks.attack import AttackedResponse, AttackTarget, AttackVerdict


@dataclass(frozen=True)
class TokenSearch(CheckedSettings):
    """A text of at most `length` words, each the one of `words` with the highest mean margin over pairs of `prompts`
    prompts: grown word by word, then every place is tried again, `sweeps` times. `words`: () takes the `vocabulary`
    commonest words of the good responses that are searched on. Judges length * vocabulary * prompts * (1 + sweeps)
    responses.

    A coordinate search as in "Universal and Transferable Adversarial Attacks" (GCG, arXiv 2307.15043), by trying
    instead of by gradients, which an endpoint does not give.
    """

    length: Annotated[int, Ge(1)] = 6
    words: tuple[str, ...] = ()
    vocabulary: Annotated[int, Ge(2)] = 16
    prompts: Annotated[int, Ge(1)] = 4
    sweeps: Annotated[int, Ge(0)] = 1

    def attack(
        self, pairs: Sequence[PreferencePair], target: AttackTarget, rng: random.Random
    ) -> list[AttackedResponse]:
        """One text, for the pairs of the prompts that it was not searched on. Raises BadInputError for pairs of one
        prompt only, or where no text could be judged."""
        prompts = [ids.prompt_id(pair.prompt) for pair in pairs]
        distinct = sorted(set(prompts))
        if len(distinct) < 2:
            raise BadInputError("words are searched on some prompts and measured on others: one prompt is not enough")
        searched = set(rng.sample(distinct, min(self.prompts, len(distinct) // 2)))
        rows = [prompts.index(prompt) for prompt in sorted(searched)]
        text = " ".join(self._search(pairs, rows, target, rng))
        return [AttackedResponse(row, text, text) for row, prompt in enumerate(prompts) if prompt not in searched]

    def _search(
        self, pairs: Sequence[PreferencePair], rows: Sequence[int], target: AttackTarget, rng: random.Random
    ) -> list[str]:
        words = list(self.words) or common_words([pairs[row] for row in rows], self.vocabulary)
        chosen: list[str] = []
        best: tuple[float, list[str]] = (-math.inf, chosen)
        for position in [*range(self.length)] * (1 + self.sweeps):
            tried = [[*chosen[:position], word, *chosen[position + 1 :]] for word in rng.sample(words, len(words))]
            means = _mean_margins([" ".join(text) for text in tried], rows, target)
            top = max(range(len(tried)), key=means.__getitem__)
            chosen = tried[top]  # never worse than before where a position is tried again: its word is among the tried
            if means[top] > best[0]:
                best = (means[top], chosen)
        if best[0] == -math.inf:
            raise BadInputError("none of the searched texts could be judged")
        return best[1]


def common_words(pairs: Sequence[PreferencePair], most: int) -> list[str]:
    """The commonest words of the good responses, equal counts by their order in the alphabet."""
    counts = Counter(word for pair in pairs for word in response_text(pair.chosen).split())
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]


def _mean_margins(texts: Sequence[str], rows: Sequence[int], target: AttackTarget) -> list[float]:
    """Of each text over the rows; of those that could be judged, -inf for none."""
    verdicts = target.judge([AttackedResponse(row, text) for text in texts for row in rows])
    means = []
    for start in range(0, len(verdicts), len(rows)):
        margins = [one.margin for one in verdicts[start : start + len(rows)] if isinstance(one, AttackVerdict)]
        means.append(sum(margins) / len(margins) if margins else -math.inf)
    return means


@dataclass(frozen=True)
class PolicySearch(CheckedSettings):
    """Of `samples` responses of a policy to each prompt the one that the model rewards most. `policy`: a folder or hub
    id."""

    may_be_good: ClassVar[bool] = True

    policy: str
    samples: Annotated[int, Ge(1)] = 8
    max_new_tokens: Annotated[int, Ge(1)] = 64
    temperature: Annotated[float, Gt(0)] = 1.0
    device: str = "auto"

    def attack(
        self, pairs: Sequence[PreferencePair], target: AttackTarget, rng: random.Random
    ) -> list[AttackedResponse]:
        """One response a pair; pairs of one prompt have the same samples. Prompts that are too long have none."""
        texts = self._sampled(pairs, rng.getrandbits(31))
        tried = [
            AttackedResponse(row, text)
            for row, pair in enumerate(pairs)
            for text in texts.get(ids.prompt_id(pair.prompt), ())
        ]
        best: dict[int, tuple[float, AttackedResponse]] = {}
        for one, verdict in zip(tried, target.judge(tried), strict=True):
            margin = verdict.margin if isinstance(verdict, AttackVerdict) else -math.inf
            if one.row not in best or margin > best[one.row][0]:
                best[one.row] = (margin, one)
        return [one for _, one in best.values()]

    def _sampled(self, pairs: Sequence[PreferencePair], seed: int) -> dict[str, list[str]]:
        from assay.models.parallelism.distributed import local_device
        from assay_policy_training.core.policy import Policy
        from assay_policy_training.core.prompt import PromptItem
        from assay_policy_training.core.sampling import Sampling, group_seeds
        from assay_policy_training.plugins.samplers.transformers import TransformersSampler
        from assay_policy_training.rollouts.prompt_length import select_prompts

        sampling = Sampling(max_new_tokens=self.max_new_tokens, temperature=self.temperature)
        policy = Policy(self.policy, device=local_device(self.device), max_prompt_tokens=sampling.max_prompt_tokens)
        by_prompt = {ids.prompt_id(pair.prompt): PromptItem(pair.prompt) for pair in pairs}
        items = select_prompts(list(by_prompt.values()), policy.renderer, sampling).items
        seeds, sampler = group_seeds(seed, len(items)), TransformersSampler(policy, sampling)
        texts: dict[str, list[str]] = {}
        at_once = max(1, sampling.rows_at_once // self.samples)
        for start in range(0, len(items), at_once):
            part = items[start : start + at_once]
            batch = sampler.rollout(part, self.samples, seed=seeds[start : start + at_once], version=0)
            for number, item in enumerate(part):
                texts[ids.prompt_id(item.prompt)] = list(
                    batch.responses[number * self.samples : (number + 1) * self.samples]
                )
        return texts
