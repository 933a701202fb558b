"""Process rewards whose sum cannot be exploited: Clip and Delta.

Source: "On Designing Effective RL Reward at Training Time for LLM Reasoning", arXiv 2410.15115 (abstract and notes; the
values of eta and alpha are not published). Raw step scores add up, so that trivially right steps are rewarded; clipped
ones are at most 0, and differences telescope: the process return from a step on is that step's own score, however many
follow.

The returns need an estimator that adds up token rewards from each token on (PPO, REINFORCE++); one that reads only the
sum of a row sees the first step's score. Leaves out: the model that scores steps (`process_reward`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.core.steps import SEPARATOR, last_token_of_step, segments, step_values
from assay_policy_training.plugins.shaping.outcomes import reward_part

if TYPE_CHECKING:
    from assay_policy_training.core.policy import Policy


def clip(values: Sequence[float], eta: float) -> list[float]:
    """min(p - eta, 0): nothing for good steps, a loss for poor ones."""
    return [min(value - eta, 0.0) for value in values]


def delta(values: Sequence[float], *, last_counts: bool = False) -> list[float]:
    """p_k - p_{k+1}. The last step carries the success only, so the last but one keeps its own score; with
    `last_counts` the last one keeps its score instead and the sum is p_1 in both."""
    if not values:
        return []
    if last_counts:
        return [value - after for value, after in zip(values, [*values[1:], 0.0], strict=True)]
    return [*delta(values[:-1], last_counts=True), 0.0]


@dataclass
class ClipAndDelta(RecipeSettings, section="shaping"):
    """S3: alpha x the clipped and differenced step scores of `part`, each on the last token of its step, beside the
    reward. A row whose step scores are missing becomes missing."""

    eta: float = 0.5
    alpha: float = 1.0
    part: str = "process"
    clips: bool = True
    differences: bool = True
    last_counts: bool = False  #: see `delta`
    separator: str = SEPARATOR
    _tokenizer: Any = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.separator:
            raise BadInputError("must not be empty", field="shaping.separator")

    def attach(self, policy: Policy) -> None:
        self._tokenizer = policy.tokenizer

    def rewards(self, values: Sequence[float]) -> list[float]:
        """Step scores to step rewards: clipped first, then differenced."""
        clipped = clip(values, self.eta) if self.clips else list(values)
        return delta(clipped, last_counts=self.last_counts) if self.differences else clipped

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        reward_part(batch, self.part)
        segment = batch.segment
        if segment is None:
            assert self._tokenizer is not None  # attached before the first step
            segment = segments(self._tokenizer, batch, self.separator)
        dense = torch.zeros(batch.mask.shape, dtype=torch.float64)
        reward = batch.scored_reward.clone()
        for row, values in enumerate(step_values(batch, self.part)):
            if values is None:
                reward[row] = torch.nan
                continue
            for step, value in enumerate(self.rewards(values)):
                position = last_token_of_step(segment[row], batch.mask[row], step)
                if position is not None:
                    dense[row, position] += self.alpha * value
        dense = dense if batch.dense is None else batch.dense + dense
        return batch.with_(reward=reward, dense=dense, segment=segment)
