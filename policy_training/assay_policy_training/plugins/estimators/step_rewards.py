"""Advantages from the values that a reward gave the steps: GRPO with process supervision, TP-GRPO's thoughts.

Covers: step rewards normalised over all steps of a group, summed from each step on; thoughts, runs of steps that a
judge called alike, rewarded against the outcome and scaled by how able the policy is at the prompt. Leaves out: the
model or judge that gives the values (`--reward process=steps:...`, `process=prover:...`), differences (`step_values`).

Sources: DeepSeekMath arXiv 2402.03300 section 4.1.3 (read): r~ = (r - mean(R)) / std(R), R all step rewards of the
group; the advantage of a token = sum of r~ over the steps that end at it or later. TP-GRPO arXiv 2507.23317 (abstract
and notes): of a right solution a right thought earns alpha x accuracy, a wrong one loses as much, the last one gets the
standardised outcome o; of a wrong one a thought that agrees with the outcome gets o, another -o; the advantage is the
sum from the thought on. Labels alternate, so where the last one agrees with the outcome that is o, o - alpha x accuracy
for wrong thoughts of right solutions, and 0 for right thoughts of wrong ones. This is computed here for every row, also
where the last thought disagrees (ours: the sums would then reward what comes before it for its sake). Turning-Point
GRPO is another method.
"""

from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate
from statistics import fmean, pstdev, stdev
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.core.steps import SEPARATOR, by_token, segments_of, step_values
from assay_policy_training.plugins.estimators.group_relative import grpo
from assay_policy_training.plugins.shaping.outcomes import reward_part


def process_grpo(rewards: Sequence[Sequence[float]], *, ddof: int = 1, eps: float = 1e-6) -> list[list[float]]:
    """Advantages of the steps of one group's rows: the normalised rewards of each step and those after it. All 0 where
    all rewards are equal, or where there are no more than `ddof`."""
    flat = [reward for row in rewards for reward in row]
    if len(flat) <= ddof or max(flat) - min(flat) < EQUAL_RANGE:
        return [[0.0] * len(row) for row in rewards]
    mean, deviation = fmean(flat), stdev(flat) if ddof else pstdev(flat)
    normalised = [[(reward - mean) / (deviation + eps) for reward in row] for row in rewards]
    return [list(accumulate(reversed(row)))[::-1] for row in normalised]


def thoughts(labels: Sequence[bool], *, right: bool, outcome: float, bonus: float) -> list[float]:
    """Advantages of the steps of one row. `labels`: whether each step is right; `right`: whether the answer is;
    `outcome`: standardised; `bonus`: alpha x the group's accuracy. The last thought of a right solution has `outcome`.
    """
    if not right:
        return [0.0 if label else outcome for label in labels]
    last = len(labels) - next((n for n, label in enumerate(reversed(labels)) if label != labels[-1]), len(labels))
    return [outcome if label or n >= last else outcome - bonus for n, label in enumerate(labels)]


class StepEstimator(RecipeSettings, section="estimator", frozen=False):
    """Puts advantages of steps on their tokens. Rows without a reward or without step values get 0."""

    part: str = "process"
    separator: str = SEPARATOR
    _tokenizer: Any = field(init=False, default=None, repr=False, compare=False)
    group_relative: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.separator:
            raise BadInputError("must not be empty", field="estimator.separator")

    def attach(self, policy: Policy) -> None:
        self._tokenizer = policy.tokenizer

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        reward_part(batch, self.part)
        segment, valid = segments_of(self._tokenizer, batch, self.separator), batch.valid.tolist()
        values = [row if valid[n] else None for n, row in enumerate(step_values(batch, self.part))]
        adv = torch.zeros(batch.mask.shape)
        for row, by_step in self.by_step(batch, values).items():
            generated = batch.mask[row]
            adv[row, generated] = by_token(by_step, segment[row, generated], field="estimator.separator")
        return adv, None

    def by_step(self, batch: RolloutBatch, values: Sequence[Sequence[float] | None]) -> dict[int, list[float]]:
        """Row -> advantages of its steps."""
        raise NotImplementedError


class ProcessGrpo(StepEstimator, section="estimator", frozen=False):
    """S6: `process_grpo`, plus `outcome` x GRPO's advantage of the row's outcome (0: the paper's)."""

    outcome: Annotated[float, Ge(0)] = 0.0
    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Ge(0)] = 1e-6

    def by_step(self, batch: RolloutBatch, values: Sequence[Sequence[float] | None]) -> dict[int, list[float]]:
        groups: dict[str, list[int]] = {}
        for row, listed in enumerate(values):
            if listed is not None:
                groups.setdefault(batch.uid[row], []).append(row)
        by_outcome = grpo(batch.outcome, batch.group, ddof=self.ddof, eps=self.eps).tolist()
        out: dict[int, list[float]] = {}
        for rows in groups.values():
            advantages = process_grpo([values[row] or () for row in rows], ddof=self.ddof, eps=self.eps)
            out.update(
                {
                    row: [a + self.outcome * by_outcome[row] for a in by_step]
                    for row, by_step in zip(rows, advantages, strict=True)
                }
            )
        return out


class Thoughts(StepEstimator, section="estimator", frozen=False):
    """S6: `thoughts`. A step is right where its value is above `right_above`, a solution where its outcome is above
    `pass_above`; outcomes are standardised by the group (ddof 0)."""

    alpha: Annotated[float, Ge(0)] = 1.0
    right_above: float = 0.5
    pass_above: float = 0.5
    eps: Annotated[float, Ge(0)] = 1e-6

    def by_step(self, batch: RolloutBatch, values: Sequence[Sequence[float] | None]) -> dict[int, list[float]]:
        outcome = grpo(batch.outcome, batch.group, ddof=0, eps=self.eps).tolist()
        right = torch.where(batch.valid, (batch.outcome > self.pass_above).double(), torch.nan)
        accuracy = group_moments(right, batch.group, ddof=0)[1].tolist()
        return {
            row: thoughts(
                [v > self.right_above for v in listed],
                right=bool(right[row] == 1),
                outcome=outcome[row],
                bonus=self.alpha * accuracy[row] if outcome[row] else 0.0,
            )
            for row, listed in enumerate(values)
            if listed is not None
        }
