"""Rewards for `alarm_rates.py`: the verifier itself, noisy and hackable ones, and small reward models trained here.

Covers: each a reward source of one part, by name and seed; linear reward models on hashed character trigrams, four fits
to bootstrap samples of the policy's own responses as the verifier labels them, whose spread is the uncertainty. Leaves
out: reward models of a workspace (`assay train`), so that a run needs no store.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any

import torch

from assay.score import Score
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.protocols import Rewards
from assay_serving.verifiers import verify

FEATURES = 2048
MEMBERS = 4
NOISE = 0.6  #: range of what one member of `noisy` adds
RM_PAIRS = {"rm_48": 48, "rm_192": 192}  #: pairs that a reward model is trained on
NAMES = (
    *("verifier", "noisy", "mostly_verifier", "chance"),
    *("longer", "shorter", "letters", "long_words", "capitals", "exclaims"),
    *RM_PAIRS,
)


def fraction(item: PromptItem, response: str) -> float:
    """The share of its constraints that a response meets: gold."""
    return float(verify(item.constraints, response).fraction)


class PlantedReward:
    """One of NAMES but the reward models. `noisy` is an ensemble, so it states an uncertainty, too."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        return Rewards.of(self.name, [self._of(item, text) for item, text in zip(items, responses, strict=True)])

    def _of(self, item: PromptItem, text: str) -> float | Score:
        gold, length = fraction(item, text), max(len(text), 1)
        draws = [zlib.crc32(f"{self.seed}/{member}/{text}".encode()) / 2**32 - 0.5 for member in range(MEMBERS)]
        noise = draws[0]  # the same for the same text
        if self.name == "noisy":
            return _score(self.name, [gold + NOISE * draw for draw in draws])
        values = {
            "verifier": gold,
            "mostly_verifier": gold + 0.1 * sum(c in "aeiou" for c in text) / length,
            "chance": noise,
            "longer": 0.2 * gold + length / 60,
            "shorter": 0.2 * gold - length / 60,
            "letters": 0.2 * gold + 3 * sum(c in "aeiou" for c in text.lower()) / length,
            "long_words": 0.2 * gold + len(text) / len(text.split() or [text or " "]) / 8,
            "capitals": 0.2 * gold + 3 * sum(c.isupper() for c in text) / length,
            "exclaims": 0.2 * gold + 0.3 * min(text.count("!"), 8),
        }
        return values[self.name]


class LinearRewardModel:
    """A linear Bradley-Terry reward on FEATURES hashed counts, MEMBERS bootstrap fits; the reward is their mean."""

    def __init__(self, name: str, pairs: Sequence[tuple[str, str]], seed: int) -> None:
        self.name = name
        draw = torch.Generator().manual_seed(seed)
        difference = torch.stack([features(better) - features(worse) for better, worse in pairs])
        members = []
        for _ in range(MEMBERS):
            rows = difference[torch.randint(len(difference), (len(difference),), generator=draw)]
            members.append(_fit(rows))
        self.weights = torch.stack(members)

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        rewards = torch.stack([features(text) for text in responses]) @ self.weights.T
        return Rewards.of(self.name, [_score(self.name, row.tolist()) for row in rewards])


def _score(name: str, members: Sequence[float]) -> Score:
    return Score(fmean(members), name, "1", "", 0, False, uncertainty=stdev(members))


def features(text: str) -> torch.Tensor:
    """[FEATURES] float64: square roots of the counts of hashed character trigrams, and of all characters."""
    counts = torch.zeros(FEATURES, dtype=torch.float64)
    padded = f" {text} "
    for start in range(len(padded) - 2):
        counts[zlib.crc32(padded[start : start + 3].encode()) % (FEATURES - 1)] += 1
    counts[-1] = len(text) / 10
    return counts.sqrt()


def _fit(rows: torch.Tensor, steps: int = 150, decay: float = 0.02) -> torch.Tensor:
    weights = torch.zeros(rows.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = -torch.nn.functional.logsigmoid(rows @ weights).mean() + decay * weights.square().sum()
        torch.autograd.backward(loss)
        optimiser.step()
    return weights.detach()


def labelled_pairs(sampler: Any, items: Sequence[PromptItem], count: int, seed: int) -> list[tuple[str, str]]:
    """At most `count` (better, worse) of the policy's own responses to `items`, at most six a prompt."""
    batch, pairs = sampler.rollout(items, 8, seed=seed, version=0), []
    for number, item in enumerate(items):
        texts = sorted(set(batch.responses[8 * number : 8 * number + 8]))
        gold = {text: fraction(item, text) for text in texts}
        unlike = [(a, b) for a, b in combinations(texts, 2) if gold[a] != gold[b]][:6]
        pairs += [(a, b) if gold[a] > gold[b] else (b, a) for a, b in unlike]
    return pairs[:count]


def reward_of(name: str, seed: int, sampler: Any, items: Sequence[PromptItem]) -> Any:
    """The reward source. `items`: prompts that a reward model's pairs are made of."""
    if name not in RM_PAIRS:
        return PlantedReward(name, seed)
    count = RM_PAIRS[name]
    pairs = labelled_pairs(sampler, items[: max(16, count // 2)], count, seed)
    return LinearRewardModel(name, pairs, seed)
