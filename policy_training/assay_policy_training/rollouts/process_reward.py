"""A reward for every step of a response: any scorer, applied to each prefix that ends with a step.

Covers: steps cut at a separator, step values as log-odds or as probabilities, a row of which one prefix failed (it is
missing, with the reason). Leaves out: steps from forced answers or Monte-Carlo continuations; process models that score
all steps in one pass are called step by step too, so that remote ones work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from assay.score import Score, ScoreFailure
from assay.statistics.logistic import sigmoid
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.steps import SEPARATOR, step_prefixes, with_step_values
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.rollouts.outage import outage_seconds
from assay_policy_training.rollouts.rewards import score_item
from assay_serving.scorer import Scorer


class ProcessReward:
    """S3: the part `name` is the value of the whole response, its score holds the value of every prefix as a part.

    `probability`: sigmoid of the model's reward, as process scores in (0, 1) are meant; else the reward as it is.
    """

    def __init__(
        self, scorer: Scorer, *, name: str = "process", separator: str = SEPARATOR, probability: bool = True
    ) -> None:
        self.scorer, self.name, self.separator, self.probability = scorer, name, separator, probability

    def numbers(self) -> dict[str, float]:
        return outage_seconds(self.scorer)

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        kind = self.scorer.info.kind
        prefixes = [step_prefixes(response, self.separator) for response in responses]
        prefix_items = [
            score_item(kind, item, prefix) for item, listed in zip(items, prefixes, strict=True) for prefix in listed
        ]
        answers = iter(self.scorer.score(prefix_items))
        part: list[float] = []
        failures: list[tuple[ScoreFailure, ...]] = []
        scores: list[dict[str, Score]] = []
        for listed in prefixes:
            row = [next(answers) for _ in listed]
            scored = [answer for answer in row if isinstance(answer, Score)]
            if len(scored) == len(row):
                values = [sigmoid(a.reward) if self.probability else a.reward for a in scored]
                part.append(values[-1])
                scores.append({self.name: with_step_values(scored[-1], values)})
            else:
                part.append(math.nan)
                scores.append({})
            failures.append(tuple(a for a in row if isinstance(a, ScoreFailure))[:1])
        return Rewards({self.name: torch.tensor(part, dtype=torch.float64)}, failures, scores)
