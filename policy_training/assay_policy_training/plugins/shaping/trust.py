"""Trust-GRPO: a judge's score of the thinking, weighted by its agreement with the group's outcomes, decaying.

Source: "SophiaVL-R1: Reinforcing MLLMs Reasoning with Thinking Reward", arXiv 2505.17018. In the released code the
judge is asked only where the outcome is at least 0.2 and everything else is scored 0, so with binary outcomes the
trust is always 1, and a judge that failed gives 0: here every row is judged, and a failed judgement is missing. With
one side of a group empty the trust is 1 (the code sets that side's mean to 0, which gives the same for an empty wrong
side, and distrust for an empty right one).
"""

import math
from dataclasses import field
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.protocols import StepReport
from assay_policy_training.plugins.shaping.outcomes import group_range, reward_part

RIGHT_FROM = 0.5
#: A group whose outcomes all lie at or beyond one of these is decided: its thinking is not looked at.
DECIDED = (0.1, 0.9)


def trust(outcome: Tensor, thinking: Tensor, group: Tensor) -> Tensor:
    """[B] gamma of each row's group: 1 where right rows' mean thinking is at least that of wrong rows, else exp of the
    difference. Rows of which one of the two is missing take no part."""
    present = ~(outcome.isnan() | thinking.isnan())

    def mean_where(rows: Tensor) -> tuple[Tensor, Tensor]:
        count, mean, _, _ = group_moments(torch.where(rows, thinking, torch.nan), group, ddof=0)
        return count, mean

    right_count, right = mean_where(present & (outcome >= RIGHT_FROM))
    wrong_count, wrong = mean_where(present & (outcome < RIGHT_FROM))
    both = (right_count > 0) & (wrong_count > 0)
    return torch.where(both & (right < wrong), (right - wrong).exp(), 1.0)


def trusted_reward(outcome: Tensor, thinking: Tensor, group: Tensor, weight: float) -> Tensor:
    """[B] outcome + gamma weight thinking; the outcome alone in decided groups."""
    low, high = group_range(outcome, ~outcome.isnan(), group)
    decided = (low >= DECIDED[1]) | (high <= DECIDED[0])
    return outcome + torch.where(decided, 0.0, trust(outcome, thinking, group) * weight * thinking)


class TrustedThinking(StatefulSettings, section="shaping"):
    """S3: `trusted_reward` in place of the reward, of the parts `outcome` and `thinking`, both in [0, 1], with weight
    alpha exp(-steps done / decay)."""

    thinking: str = "thinking"
    outcome: str = "verifier"
    alpha: Annotated[float, Ge(0)] = 0.3
    decay: Annotated[float, Gt(0)] = 500.0  #: steps
    done: int = field(init=False, default=0)  #: steps

    @property
    def weight(self) -> float:
        return self.alpha * math.exp(-self.done / self.decay)

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        outcome = torch.where(batch.valid, reward_part(batch, self.outcome), torch.nan)
        return batch.with_(reward=trusted_reward(outcome, reward_part(batch, self.thinking), batch.group, self.weight))

    def observe(self, report: StepReport) -> None:
        self.done = report.step

    def numbers(self) -> dict[str, float]:
        return {"thinking_weight": self.weight}
