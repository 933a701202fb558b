"""Advantages of semi-online RL: of the episode and of the step among those of its group, from discounted step returns.

Covers: UI-S1's advantage (arXiv 2509.11543; code X-PLUG/MobileAgent, UI-S1/uis1/core_uis1.py, read): the return of a
step is its reward and `gamma` times that of the step after it; a step whose action was patched hands nothing back
(`breaks`), since what came after it was not its own doing. A = episode x A_episode + step x A_step, each less its mean
over the group, of a step over the rows that have a step of that number. Departs: the episode's reward is the row's, the
code takes that of each step, as its rows are single steps. Leaves out: the replay (`environments.replay`).
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from annotated_types import Ge, Le

from assay_policy_training.core.batch import RolloutBatch, dr_grpo
from assay_policy_training.plugins.estimators.group_relative import grpo
from assay_policy_training.plugins.estimators.step_rewards import StepEstimator


def discounted_returns(rewards: Sequence[float], gamma: float, own: Sequence[bool] | None = None) -> list[float]:
    """Of each step its reward and the discounted ones of those after it. `own`: whether the policy's action was taken;
    one that was not has its reward alone, and hands back nothing. [0, 0, 1] at 0.5: [0.25, 0.5, 1]."""
    running, out = 0.0, list[float]()
    for reward, taken in reversed(list(zip(rewards, own or [True] * len(rewards), strict=True))):
        out.append(reward + gamma * running if taken else reward)
        running = out[-1] if taken else 0.0
    return out[::-1]


class SemiOnline(StepEstimator, section="estimator", frozen=False):
    """S6. `part`: what a step earns. `scaled`: whether advantages are divided by the group's deviation."""

    part: str = "step"
    gamma: Annotated[float, Ge(0), Le(1)] = 0.5
    episode: Annotated[float, Ge(0)] = 1.0
    step: Annotated[float, Ge(0)] = 1.0
    breaks: bool = True
    scaled: bool = True
    eps: Annotated[float, Ge(0)] = 1e-6

    def by_step(self, batch: RolloutBatch, values: Sequence[Sequence[float] | None]) -> dict[int, list[float]]:
        rows = {row: list(listed) for row, listed in enumerate(values) if listed is not None}
        returns = {
            row: discounted_returns(listed, self.gamma, [value > 0 for value in listed] if self.breaks else None)
            for row, listed in rows.items()
        }
        wide = torch.full((len(values), max(map(len, returns.values()), default=0)), torch.nan, dtype=torch.float64)
        for row, listed in returns.items():
            wide[row, : len(listed)] = torch.tensor(listed, dtype=torch.float64)
        of_episode = self._relative(batch.scored_reward, batch).tolist()
        of_step = [self._relative(column, batch).tolist() for column in wide.T]
        return {
            row: [self.episode * of_episode[row] + self.step * of_step[n][row] for n in range(len(listed))]
            for row, listed in returns.items()
        }

    def _relative(self, values: torch.Tensor, batch: RolloutBatch) -> torch.Tensor:
        """[B] less the mean of the group; 0 where there is none."""
        relative = grpo(values, batch.group, eps=self.eps) if self.scaled else dr_grpo(values, batch.group)
        return relative.nan_to_num(0.0)
