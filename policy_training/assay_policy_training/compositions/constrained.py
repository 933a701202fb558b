"""Constrained RLHF: a learned multiplier for each reward, which falls once the reward is where it should be.

Source: "Confronting Reward Model Overoptimization with Constrained RLHF", arXiv 2310.04373, its squashed branch (the
other one of the official code indexes multipliers from 1). The paper mixes advantages of separate value heads:
A = (N - sum g(l)) A_KL + sum g(l_i) A_i, with every advantage standardised. Here the rewards are mixed, each
standardised by what the run has seen so far, and the KL has the weight that the recipe gives it; `mixed` is the paper's
formula, which the tests hold it against. Leaves out: the search for proxy points.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.compositions.named import check_numbers, check_positive, named_part, part_mean
from assay_policy_training.slots import StepReport

AT_LEAST, EQUAL = "at_least", "equal"
#: Standard deviation that multipliers are drawn with at the start.
SPREAD = 0.01


def squash(multiplier: float, kind: str) -> float:
    """The weight g(l): sigmoid for "at least the threshold", tanh (which may be negative) for "equal to it"."""
    return 1 / (1 + math.exp(-multiplier)) if kind == AT_LEAST else math.tanh(multiplier)


def slope(multiplier: float, kind: str) -> float:
    """dg/dl."""
    g = squash(multiplier, kind)
    return g * (1 - g) if kind == AT_LEAST else 1 - g * g


def mixed(advantages: Sequence[float], kl_advantage: float, multipliers: Sequence[float], kind: str) -> float:
    """(N - sum g(l)) A_KL + sum g(l_i) A_i: the paper's mixture of advantages."""
    weights = [squash(value, kind) for value in multipliers]
    own = sum(w * a for w, a in zip(weights, advantages, strict=True))
    return (len(weights) - sum(weights)) * kl_advantage + own


def gradients(
    multipliers: Sequence[float], means: Sequence[float], thresholds: Sequence[float], kind: str
) -> list[float]:
    """d/dl of sum g(l_i) (mean J_i - threshold_i), without a gradient through J: above the threshold l falls."""
    return [
        slope(value, kind) * (mean - threshold)
        for value, mean, threshold in zip(multipliers, means, thresholds, strict=True)
    ]


@dataclass
class Constrained:
    """S3: sum of g(l_i) x part_i. `thresholds`: part -> where its mean should be, in its own units.

    `kind`: at_least or equal. One SGD step a training step, on the means of the step's rollouts, with `momentum` and
    gradients cut to a norm of `clip`. Standardised: less the running mean, over the running deviation of each part.
    """

    thresholds: Mapping[str, float] = field(default_factory=dict)
    constraint: str = AT_LEAST
    lr: float = 0.1
    momentum: float = 0.1
    clip: float = 0.5
    standardise: bool = True
    seed: int = 0
    multipliers: dict[str, float] = field(init=False, default_factory=dict)
    _velocity: dict[str, float] = field(init=False, default_factory=dict, repr=False)
    _moments: dict[str, list[float]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_numbers(self.thresholds, "thresholds")
        check_positive([("lr", self.lr), ("clip", self.clip)])
        if self.constraint not in (AT_LEAST, EQUAL):
            raise BadInputError(f"{AT_LEAST} or {EQUAL}, not {self.constraint!r}", field="reward.constraint")
        if not 0 <= self.momentum < 1:
            raise BadInputError(f"must lie in [0, 1), not {self.momentum}", field="reward.momentum")
        draw = random.Random(self.seed)
        self.multipliers = {name: draw.gauss(0.0, SPREAD) for name in sorted(self.thresholds)}
        self._velocity = dict.fromkeys(self.thresholds, 0.0)
        self._moments = {name: [0.0, 0.0, 0.0] for name in self.thresholds}  # count, sum, sum of squares

    @property
    def weights(self) -> dict[str, float]:
        return {name: squash(value, self.constraint) for name, value in self.multipliers.items()}

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
        """Move the multipliers by the step's means; a part that no row has leaves its multiplier where it is."""
        parts = report.batch.r_parts
        means = {name: part_mean(parts, name) for name in sorted(self.thresholds)}
        known = {name: mean for name, mean in means.items() if mean is not None}
        names = list(known)
        found = gradients(
            [self.multipliers[n] for n in names], list(known.values()), [self.thresholds[n] for n in names],
            self.constraint,
        )  # fmt: skip
        norm = math.sqrt(sum(g * g for g in found))
        shrink = min(1.0, self.clip / norm) if norm > 0 else 1.0
        for name, gradient in zip(names, found, strict=True):
            self._velocity[name] = self.momentum * self._velocity[name] + gradient * shrink
            self.multipliers[name] -= self.lr * self._velocity[name]
            values = named_part(parts, name)
            present = values[~values.isnan()]
            moments = self._moments[name]
            for i, extra in enumerate((len(present), float(present.sum()), float((present**2).sum()))):
                moments[i] += extra

    def numbers(self) -> dict[str, float]:
        return {f"reward_weight_{name}": weight for name, weight in self.weights.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"multipliers": self.multipliers, "velocity": self._velocity, "moments": self._moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.multipliers = {name: float(value) for name, value in state["multipliers"].items()}
        self._velocity = {name: float(value) for name, value in state["velocity"].items()}
        self._moments = {name: [float(v) for v in values] for name, values in state["moments"].items()}
