"""The cosine length reward: right answers earn less as they grow, wrong ones lose less.

Source: "Demystifying Long Chain-of-Thought Reasoning in LLMs", arXiv 2502.03373, code eddycmu/demystify-long-cot.
Leaves out: its repetition penalty (`repetition`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.shaping.outcomes import correctness, response_limit


def cosine(lengths: Tensor, limit: int, at_zero: float, at_limit: float) -> Tensor:
    """[B] b + (a - b) (1 + cos(pi len / limit)) / 2 with a at length 0 and b at the limit."""
    return at_limit + 0.5 * (at_zero - at_limit) * (1 + torch.cos(math.pi * lengths.double() / limit))


@dataclass(frozen=True)
class CosineLength(RecipeSettings, section="shaping"):
    """S3: the cosine reward in place of the reward; `exceeded` from `margin` tokens before the limit on.

    Wrong and short is worst, by design. Under GRPO the -10 of a single row decides its group's deviation: use an
    estimator without division. A row whose correctness is unknown becomes missing.
    """

    correct_short: float = 2.0
    correct_long: float = 1.0
    wrong_short: float = -10.0
    wrong_long: float = 0.0
    exceeded: float = -10.0
    margin: Annotated[int, Ge(0)] = 0
    max_length: Annotated[int | None, Gt(0)] = None  #: None = the response limit of the step
    correct: str | None = None  #: reward part that says what is right; None = `acc`

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        limit, lengths = response_limit(batch, self.max_length), batch.lengths
        right = correctness(batch, self.correct)
        reward = torch.where(
            right == 1,
            cosine(lengths, limit, self.correct_short, self.correct_long),
            cosine(lengths, limit, self.wrong_short, self.wrong_long),
        )
        reward = torch.where(lengths + self.margin >= limit, self.exceeded, reward)
        return batch.with_(reward=torch.where(batch.valid & ~right.isnan(), reward, torch.nan))
