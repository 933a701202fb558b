"""Advantages of steps: how much each step of a response changed its value.

Covers: A_k = V_k - V_(k-1) on every token of step k, with the values recorded with the response (probabilities of
success from rollouts, or a value model's) or a critic's at the first token of each step; the outcome as the last value
where none is recorded; differences too small for the number of rollouts count as 0; positive advantages only. A
response without steps is one, so that A = R - V(prompt). Leaves out: making the values (`assay step-values`), credit by
discounted sums (`gae`).

Sources: RL on incorrect synthetic data, arXiv 2406.14532 (abstract): Q_0 .5, Q .6 .5 .1 .1 -> .1 -.1 -.4 0; Direct
Advantage Policy Optimization, arXiv 2412.18279 (abstract, summaries): V .4 .7 .3, outcome 1 -> .3 -.4 .7; A-LoL, arXiv
2305.14718, code read: A = R - V(x), negative ones dropped.
"""

import math
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import record_of
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.core.steps import SEPARATOR, segments_of, start_values, step_values
from assay_policy_training.plugins.shaping.outcomes import reward_part


def differences(values: Sequence[float], *, samples: int = 0) -> list[float]:
    """[K] of K+1 values. `samples`: rollouts behind each; what is smaller than 1/sqrt(samples) counts as 0."""
    least = 1 / math.sqrt(samples) if samples else 0.0
    steps = [after - before for before, after in pairwise(values)]
    return [gap if abs(gap) >= least else 0.0 for gap in steps]


class StepValues(RecipeSettings, section="estimator", frozen=False):
    """S6. `values`: `recorded` (the record's `step_values`; rows without them get 0), `part` (what reward `part` gave
    the steps in this run: a prover, a process reward model), `critic`, or `group`: the mean reward of the prompt's
    other rows, for whole responses. `positive_only`: negative advantages become 0."""

    values: Literal["recorded", "part", "critic", "group"] = "recorded"
    samples: Annotated[int, Ge(0)] = 0
    positive_only: bool = False
    part: str = "process"
    separator: str = SEPARATOR
    _tokenizer: Any = field(init=False, default=None, repr=False, compare=False)
    group_relative: ClassVar[bool] = False

    def attach(self, policy: Policy) -> None:
        self._tokenizer = policy.tokenizer

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"values"}) if self.values == "critic" else frozenset()

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, Tensor | None]:
        """The second: rewards as a critic's targets, whole responses at every own token."""
        if self.values == "part":
            reward_part(batch, self.part)
            batch = batch.with_(segment=segments_of(self._tokenizer, batch, self.separator))
        adv = torch.zeros(batch.mask.shape)
        outcomes, baselines = batch.outcome, _of_others(batch)
        for row in range(len(batch)):
            outcome, generated = float(outcomes[row]), batch.mask[row]
            if math.isnan(outcome) or not generated.any():
                continue
            steps = self._segment(batch, row, generated)
            last = int(steps.max())
            values = self._before(batch, row, generated, steps, float(baselines[row]))
            if values is None:
                continue
            if len(values) < last + 1:
                raise BadInputError(f"{len(values)} values of {last + 1} steps", field="step_values")
            # A response that was cut has fewer steps than values: the next value is that after its last step.
            ends = list(values[: last + 2]) if len(values) > last + 1 else [*values, outcome]
            differences_by_step = torch.tensor(differences(ends, samples=self.samples))
            adv[row, generated] = differences_by_step[steps]
        if self.positive_only:
            adv = adv.clamp(min=0)
        returns = torch.where(batch.valid, outcomes, 0.0)[:, None] * batch.mask
        return adv, returns if self.values == "critic" else None

    def _segment(self, batch: RolloutBatch, row: int, generated: Tensor) -> Tensor:
        """[own tokens] the number of each one's step."""
        if batch.segment is None or self.values == "group":
            return torch.zeros(int(generated.sum()), dtype=torch.long)
        return batch.segment[row][generated]

    def _before(
        self, batch: RolloutBatch, row: int, generated: Tensor, steps: Tensor, baseline: float
    ) -> list[float] | None:
        """The value before each step, and possibly after the last; None = not known."""
        if self.values == "group":
            return None if math.isnan(baseline) else [baseline]
        if self.values == "critic":
            at = batch.critic_values[row][generated]
            first = [int((steps >= number).nonzero()[0]) for number in range(int(steps.max()) + 1)]
            return [float(at[index]) for index in first]
        if self.values == "part":
            after, start = step_values(batch, self.part)[row], float(start_values(batch, self.part)[row])
            return None if after is None or math.isnan(start) else [start, *after]
        listed = record_of(batch.items[row]).get("step_values") if batch.items else None
        return None if listed is None else [float(value) for value in listed]


def _of_others(batch: RolloutBatch) -> Tensor:
    """[B] mean outcome of the other rows of the group that have one; NaN where there are none."""
    count, mean, _, _ = group_moments(batch.outcome, batch.group, ddof=0)
    means = (count * mean - batch.outcome) / (count - 1).clamp(min=1)
    return torch.where(count > 1, means, torch.nan)
