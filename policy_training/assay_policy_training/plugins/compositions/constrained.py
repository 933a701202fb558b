"""Constrained RLHF: a learned multiplier for each reward, which falls once the reward reaches its threshold.

Source: "Confronting Reward Model Overoptimization with Constrained RLHF", arXiv 2310.04373, its squashed branch (the
other one of the official code indexes multipliers from 1). The paper mixes advantages, which `estimators.constrained`
does; the composition here mixes rewards, each standardised by what the run has seen so far, for any estimator, and
leaves the KL the weight that the recipe gives it. Leaves out: the search for proxy points.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.compositions.weighted import check_numbers, named_part, part_mean
from assay_policy_training.plugins.protocols import StepReport

#: Standard deviation that multipliers are drawn with at the start.
SPREAD = 0.01


def squash(multiplier: float, kind: str) -> float:
    """The weight g(l): sigmoid for "at least the threshold", tanh (which may be negative) for "equal to it"."""
    return 1 / (1 + math.exp(-multiplier)) if kind == "at_least" else math.tanh(multiplier)


def slope(multiplier: float, kind: str) -> float:
    """dg/dl."""
    g = squash(multiplier, kind)
    return g * (1 - g) if kind == "at_least" else 1 - g * g


def gradients(
    multipliers: Sequence[float], means: Sequence[float], thresholds: Sequence[float], kind: str
) -> list[float]:
    """d/dl of sum g(l_i) (mean J_i - threshold_i), without a gradient through J: above the threshold l falls."""
    return [
        slope(value, kind) * (mean - threshold)
        for value, mean, threshold in zip(multipliers, means, thresholds, strict=True)
    ]


class Multipliers(StatefulSettings, section="reward"):
    """One multiplier l for each constraint, moved once a step by SGD on the means of the step's rollouts.

    `thresholds`: part -> where its mean should be, in its own units. `constraint`: at_least or equal. Gradients are cut
    to a norm of `clip`.
    """

    thresholds: Mapping[str, float] = field(default_factory=dict)
    constraint: Literal["at_least", "equal"] = "at_least"
    lr: Annotated[float, Gt(0)] = 0.1
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.1
    clip: Annotated[float, Gt(0)] = 0.5
    seed: int = 0
    multipliers: dict[str, float] = field(init=False, default_factory=dict)
    _velocity: dict[str, float] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self.thresholds, "thresholds", section=self.section)
        draw = random.Random(self.seed)
        self.multipliers = {name: draw.gauss(0.0, SPREAD) for name in sorted(self.thresholds)}
        self._velocity = dict.fromkeys(self.thresholds, 0.0)

    @property
    def weights(self) -> dict[str, float]:
        """g(l) of each part."""
        return {name: squash(value, self.constraint) for name, value in self.multipliers.items()}

    def observe(self, report: StepReport) -> None:
        """Move the multipliers; a part that no row has leaves its own where it is."""
        means = {name: part_mean(report.batch.r_parts, name, field=self.section) for name in self.thresholds}
        measured = {name: mean for name, mean in means.items() if mean is not None}
        slopes = gradients(
            [self.multipliers[name] for name in measured],
            list(measured.values()),
            [self.thresholds[name] for name in measured],
            self.constraint,
        )
        norm = math.sqrt(sum(gradient * gradient for gradient in slopes))
        shrink = min(1.0, self.clip / norm) if norm > 0 else 1.0
        for name, gradient in zip(measured, slopes, strict=True):
            self._velocity[name] = self.momentum * self._velocity[name] + gradient * shrink
            self.multipliers[name] -= self.lr * self._velocity[name]

    def numbers(self) -> dict[str, float]:
        return {f"reward_weight_{name}": weight for name, weight in self.weights.items()}


class Constrained(Multipliers):
    """S3: sum of g(l_i) x part_i. `standardise`: each part less its running mean, over its running deviation."""

    standardise: bool = True
    _moments: dict[str, list[float]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._moments = {name: [0.0, 0.0, 0.0] for name in self.thresholds}  # count, sum, sum of squares

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        scaled = [weight * self._scaled(name, named_part(parts, name)) for name, weight in self.weights.items()]
        return torch.stack(scaled).sum(0)

    def _scaled(self, name: str, values: Tensor) -> Tensor:
        count, total, squares = self._moments[name]
        if not self.standardise or count < 2:
            return values
        mean = total / count
        variance = squares / count - mean * mean
        return (values - mean) / math.sqrt(variance) if variance > 1e-12 else values - mean

    def observe(self, report: StepReport) -> None:
        super().observe(report)
        for name in self.thresholds:
            values = named_part(report.batch.r_parts, name)
            present = values[~values.isnan()]
            for i, extra in enumerate((len(present), float(present.sum()), float((present**2).sum()))):
                self._moments[name][i] += extra
