"""CANON: rows compared across and within the halves of a group that a metric (entropy, length) sorts apart.

Covers: the split, inter- and intra-half advantages and their mix, the directional variant, the mix following accuracy
or a cosine with restarts. With halves of one size and mix .5 the advantage is that of Dr. GRPO. Leaves out: the
division by a constant length (aggregation `seq-mean-token-sum-norm`).

Source: arXiv 2509.23962, code biuboomc/CANON.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.estimators.group_relative import over_tokens
from assay_policy_training.plugins.protocols import StepReport


def high_half(metric: Tensor, group: Tensor, present: Tensor, tie: Sequence[Any] | None = None) -> Tensor:
    """[B] bool: the row is in its group's half of high metric: of n present rows all but the n // 2 lowest.

    `tie`: per row what decides between equal metrics (default: position); rows that agree in it too are alike.
    """
    rows: dict[int, list[int]] = defaultdict(list)
    for row in present.nonzero().squeeze(1).tolist():
        rows[int(group[row])].append(row)
    high = torch.zeros(len(metric), dtype=torch.bool)
    for members in rows.values():
        ordered = sorted(members, key=lambda row: (float(metric[row]), row if tie is None else tie[row]))
        high[ordered[len(ordered) // 2 :]] = True
    return high


def canon(
    reward: Tensor, group: Tensor, high: Tensor, *, mu: float, alpha: float = 1.0, scaled_high: bool = True
) -> Tensor:
    """[B] mu inter + (1 - mu) intra; 0 for single-row groups and missing rewards. No deviation is divided by.

    inter = R - mean of the other half, intra = R - mean of the own half. `alpha` scales every reward of one half (the
    high one, or the low one) in inter, which favours the other half where alpha < 1.
    """
    reward = reward.double()
    present = ~torch.isnan(reward)
    half = group * 2 + high.long()
    size = 2 * (int(group.max()) + 1) if len(group) else 0
    empty = torch.zeros(size, dtype=torch.float64)
    count = empty.index_add(0, half, present.double())
    mean = empty.index_add(0, half, torch.where(present, reward, 0.0)) / count.clamp(min=1)
    other = half ^ 1
    scaled = torch.where(high == scaled_high, alpha, 1.0)
    scale = torch.where(high == scaled_high, 1.0, alpha)
    inter = scaled * reward - scale * mean[other]
    advantage = mu * inter + (1 - mu) * (reward - mean[half])
    return torch.where(present & (count[half] > 0) & (count[other] > 0), advantage, 0.0)


def cosine_intra(step: int, *, largest: float, warmup: int, cycle: int) -> float:
    """Weight of intra in `step` (from 0): a linear rise over `warmup` steps, then cosines from `largest` to 0."""
    if step < warmup:
        return largest * (step + 1) / warmup
    return largest / 2 * (1 + math.cos(math.pi * ((step - warmup) % cycle) / cycle))


class Canon(StatefulSettings, section="estimator"):
    """S6: `canon` on every token.

    `metric` of a row: mean entropy of old over its tokens, or their number. `schedule` of `mu`: constant; accuracy =
    the batch's mean pass rate (mean reward, cut to 0..1, where nothing is verified); cosine = 1 - `cosine_intra`.
    `alpha` scales long rows, or those of low entropy, as in the released code.
    """

    metric: Literal["entropy", "length"] = "entropy"
    mu: Annotated[float, Ge(0), Le(1)] = 0.5
    alpha: float = 1.0
    schedule: Literal["constant", "accuracy", "cosine"] = "constant"
    intra_max: Annotated[float, Ge(0), Le(1)] = 0.6
    warmup: Annotated[int, Ge(0)] = 30
    cycle: Annotated[int, Ge(1)] = 40
    steps: int = field(init=False, default=0)
    group_relative: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"entropy"}) if self.metric == "entropy" else frozenset()

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        high = high_half(self._metric(batch), batch.group, batch.valid, tie=batch.responses)
        advantage = canon(
            batch.outcome,
            batch.group,
            high,
            mu=self.mixed(batch),
            alpha=self.alpha,
            scaled_high=self.metric == "length",
        )
        return over_tokens(advantage, batch.mask), None

    def _metric(self, batch: RolloutBatch) -> Tensor:
        if self.metric == "length":
            return batch.lengths.double()
        return (batch.scored_entropy.double() * batch.mask).sum(1) / batch.lengths.clamp(min=1)

    def mixed(self, batch: RolloutBatch) -> float:
        """mu in this step."""
        if self.schedule == "constant":
            return self.mu
        if self.schedule == "cosine":
            return 1 - cosine_intra(self.steps, largest=self.intra_max, warmup=self.warmup, cycle=self.cycle)
        verified = batch.valid if batch.acc is None else batch.valid & ~batch.acc.isnan()
        if batch.acc is not None and bool(verified.any()):
            return float(batch.acc[verified].mean())
        return float(batch.outcome[batch.valid].mean().clamp(0, 1)) if bool(batch.valid.any()) else self.mu

    def observe(self, report: StepReport) -> None:
        self.steps = report.step
