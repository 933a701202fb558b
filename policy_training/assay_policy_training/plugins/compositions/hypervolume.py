"""Hypervolume-guided weighting: scales the next step's reward up when a step extends the Pareto front.

Source: "Learning to Optimize Multi-Objective Alignment Through Dynamic Reward Weighting", arXiv 2509.11452. The paper
measures the objectives on a validation set after every step; here they are the means of the step's own rollouts.
Points below the reference are clipped to it (the official recursion does not). Leaves out: the gradient form
(`gradient_weights`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.compositions.named import check_numbers, check_positive, part_mean, weighted_sum
from assay_policy_training.plugins.protocols import StepReport


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Volume that the points dominate above `reference`, every coordinate maximised.

    Sliced along the last coordinate: between two neighbouring heights the volume is that of the points that reach the
    upper one, in one dimension less.
    """
    above = [[max(p - r, 0.0) for p, r in zip(point, reference, strict=True)] for point in points]
    return _volume([point for point in above if min(point) > 0])


def _volume(points: list[list[float]]) -> float:
    if not points:
        return 0.0
    if len(points[0]) == 1:
        return max(point[0] for point in points)
    heights = sorted({point[-1] for point in points})
    total, below = 0.0, 0.0
    for height in heights:
        total += (height - below) * _volume([point[:-1] for point in points if point[-1] >= height])
        below = height
    return total


def multiplier(gain: float) -> float:
    """0.5 + 1.5 tanh(gain), the gain in hypervolume cut off at 0: from 0.5 to 2."""
    return 0.5 + 1.5 * math.tanh(max(gain, 0.0))


@dataclass
class HypervolumeWeighting(StatefulSettings, section="reward"):
    """S3: multiplier x sum of weight x part.

    `weights`: part -> weight. `reference`: part -> the point from which volume is measured. `minimised`: parts of which
    less is better. `scale`: part -> the unit of its axis: the gain depends on it, and 0.03 barely moves the multiplier.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    reference: Mapping[str, float] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    minimised: tuple[str, ...] = ()
    factor: float = field(init=False, default=1.0)  #: of the next step
    front: list[list[float]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        check_numbers(self.weights, "weights")
        check_positive((f"scale.{name}", value) for name, value in self.scale.items())
        for what, names in (("reference", self.reference), ("scale", self.scale), ("minimised", self.minimised)):
            if unknown := [name for name in names if name not in self.weights]:
                raise BadInputError(f"{unknown[0]!r} has no weight", field=f"reward.{what}")

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        return self.factor * weighted_sum(parts, self.weights)

    def observe(self, report: StepReport) -> None:
        """Measure what the step's point adds; it joins the front if it adds anything. No mean for a part: no change."""
        point: list[float] = []
        for name in self.weights:
            mean = part_mean(report.batch.r_parts, name)
            if mean is None:
                return
            sign = -1.0 if name in self.minimised else 1.0
            point.append(sign * (mean - self.reference.get(name, 0.0)) / self.scale.get(name, 1.0))
        origin = [0.0] * len(point)
        gain = hypervolume([*self.front, point], origin) - hypervolume(self.front, origin)
        self.factor = multiplier(gain)
        if gain > 0:
            stays = [p for p in self.front if any(a > b for a, b in zip(p, point, strict=True))]
            self.front = [*stays, point]

    def numbers(self) -> dict[str, float]:
        return {"reward_factor": self.factor}
