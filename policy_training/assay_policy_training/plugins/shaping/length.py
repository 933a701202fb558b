"""Rewards by length: the soft penalty near the limit, the score within a group, concise right answers, no reward for
what was cut.

Covers: DAPO's overlong penalty (arXiv 2503.14476), the length score of Kimi k1.5 (arXiv 2501.12599) with the weight of
the LASER repository, self-rewarded efficiency, the reward of DLER (arXiv 2510.15110). Leaves out: where generation
stops (`sampling.max_new_tokens`), masking of truncated rows (a filter), LASER.

The cosine length reward: right answers earn less as they grow, wrong ones lose less. Source: "Demystifying Long
Chain-of-Thought Reasoning in LLMs", arXiv 2502.03373, code eddycmu/demystify-long-cot. Leaves out: its repetition
penalty (`repetition`).
"""

import math
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import Finite, RecipeSettings
from assay_policy_training.plugins.shaping.outcomes import correctness, group_range, response_limit


def overlong_penalty(lengths: Tensor, limit: int, buffer: int, factor: float) -> Tensor:
    """[B] min(0, -(len - (limit - buffer)) / buffer * factor): from 0 at the buffer's start to -factor at the limit."""
    return ((limit - buffer - lengths.double()) / buffer * factor).clamp(max=0.0)


def kimi_score(lengths: Tensor, member: Tensor, right: Tensor, group: Tensor) -> Tensor:
    """[B] lambda = 0.5 - (len - min) / (max - min) over the group's `member` rows; wrong rows get at most 0.

    0 where all are of one length.
    """
    low, high = group_range(lengths, member, group)
    score = 0.5 - (lengths.double() - low) / (high - low)
    score = torch.where(high > low, score, 0.0)
    return torch.where(right == 1, score, score.clamp(max=0.0))


def concise_reward(lengths: Tensor, right: Tensor, group: Tensor, bonus: float) -> Tensor:
    """[B] 1 + bonus (1 - (len - min) / (max - min)) for right rows, min and max over the group's right rows; 0 for
    wrong ones. Where the right rows are of one length each gets the whole bonus."""
    low, high = group_range(lengths, right == 1, group)
    excess = torch.where(high > low, (lengths.double() - low) / (high - low), 0.0)
    return torch.where(right == 1, 1 + bonus * (1 - excess), torch.where(right.isnan(), torch.nan, 0.0))


class Overlong(RecipeSettings, section="shaping"):
    """S3: `overlong_penalty` is added. DAPO: limit 20480, buffer 4096, factor 1. A buffer longer than the limit is all
    of it."""

    buffer: Annotated[int, Gt(0)] = 4096
    factor: Annotated[float, Gt(0)] = 1.0
    max_length: Annotated[int | None, Gt(0)] = None  #: L_max in tokens; None = the response limit of the step

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        limit = response_limit(batch, self.max_length)
        penalty = overlong_penalty(batch.lengths, limit, min(self.buffer, limit), self.factor)
        return batch.with_(reward=batch.scored_reward + penalty)


class KimiLength(RecipeSettings, section="shaping"):
    """S3: coefficient x `kimi_score` is added. A row whose correctness is unknown becomes missing."""

    coefficient: Annotated[float, Gt(0)] = 0.4
    correct: str | None = None  #: reward part that says what is right; None = `acc`

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        right = correctness(batch, self.correct)
        judged = batch.valid & ~right.isnan()
        score = kimi_score(batch.lengths, judged, right, batch.group)
        reward = batch.scored_reward + self.coefficient * score
        return batch.with_(reward=torch.where(judged, reward, torch.nan))


class ConciseCorrect(RecipeSettings, section="shaping"):
    """S3: `concise_reward` in place of the reward. The form is ours; the paper says that concise right answers get
    more, relative to the group's shortest."""

    bonus: Annotated[float, Gt(0)] = 0.5
    correct: str | None = None

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        right = torch.where(batch.valid, correctness(batch, self.correct), torch.nan)
        return batch.with_(reward=concise_reward(batch.lengths, right, batch.group, self.bonus))


class TruncatedReward(RecipeSettings, section="shaping"):
    """S3, DLER: a truncated answer gets `value`, the verifier's 0, whatever its text up to there met. Not masked: these
    rows are the signal."""

    value: Finite = 0.0

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        reward = torch.where(batch.truncated & batch.valid, self.value, batch.scored_reward)
        return batch.with_(reward=reward)


def cosine(lengths: Tensor, limit: int, at_zero: float, at_limit: float) -> Tensor:
    """[B] b + (a - b) (1 + cos(pi len / limit)) / 2 with a at length 0 and b at the limit."""
    return at_limit + 0.5 * (at_zero - at_limit) * (1 + torch.cos(math.pi * lengths.double() / limit))


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
