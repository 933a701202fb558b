"""Weights of rewards that move with training: by gradients, by hypervolume.

Gradient-based weighting: weights rewards by how much their policy gradient helps all rewards. Source: "Learning to
Optimize Multi-Objective Alignment Through Dynamic Reward Weighting", arXiv 2509.11452. Influence of reward i: sum over
j of <g_i, g_j>, itself included; weights move by softmax(log w + lr I / mu). The influence grows with the square of a
reward's scale (tenfold rewards, a hundredfold influence), so rewards are scaled to one deviation by default. Gradients
of length 1, which the official code has commented out, would not work: of two rewards both influences would be 1 +
<g_1, g_2>, and no weight would ever move. Measured on a step's rollouts after its update, with group-centred rewards.

Hypervolume-guided weighting: scales the next step's reward up when a step extends the Pareto front. Source: "Learning
to Optimize Multi-Objective Alignment Through Dynamic Reward Weighting", arXiv 2509.11452. The paper measures the
objectives on a validation set after every step; here they are the means of the step's own rollouts. Points below the
reference are clipped to it (the official recursion does not).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay.errors import BadInputError
from assay.models.attention.packing import can_pack
from assay_policy_training.core.batch import RolloutBatch, dr_grpo
from assay_policy_training.core.micro_batches import PassLimits, micro_batches
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.compositions.weighted import (
    check_numbers,
    check_positive,
    named_part,
    part_mean,
    weighted_sum,
)
from assay_policy_training.plugins.protocols import RecipeView, StepReport

#: Advantages smaller than this are rounding noise.
FLAT = 1e-9


def influence(gradients: Tensor) -> Tensor:
    """[K] row sums of the Gram matrix of gradients [K,P]."""
    return gradients @ gradients.sum(0)


def updated_weights(weights: Sequence[float], influences: Sequence[float], rate: float) -> list[float]:
    """softmax(log w + rate x influence); `rate` is lr / mu."""
    logits = [math.log(w) + rate * i for w, i in zip(weights, influences, strict=True)]
    highest = max(logits)
    raised = [math.exp(value - highest) for value in logits]
    return [value / sum(raised) for value in raised]


def unit_deviation(advantage: Tensor) -> Tensor:
    """[B] over its root mean square; zeros stay."""
    size = advantage.square().mean().sqrt()
    return advantage / size if float(size) > FLAT else advantage


class GradientWeighting(StatefulSettings, section="reward"):
    """S3: sum of weight x part, weights uniform at first and moved every `accumulate` steps by the mean influence.

    `rate`: lr / mu, in the paper 1e-6 / 1e-5. `layers`: texts of which a weight's name must hold one; none = all that
    is trained. `rows`: of the step, taken in order. A part that no row has leaves all weights.
    """

    parts: tuple[str, ...] = ()
    rate: Annotated[float, Gt(0)] = 0.1
    accumulate: Annotated[int, Ge(1)] = 1
    layers: tuple[str, ...] = ()
    rows: Annotated[int, Ge(1)] = 32
    micro_batch_tokens: Annotated[int, Ge(0)] = 0
    micro_batch_rows: Annotated[int, Ge(0)] = 0
    temperature: Annotated[float, Gt(0)] = 1.0  #: that log-probs are taken at
    normalise: bool = True
    takes_gradients: ClassVar[bool] = True  #: not of weights that are shared among processes
    weights: dict[str, float] = field(init=False, default_factory=dict)
    _sums: list[float] = field(init=False, default_factory=list, repr=False)
    _steps: int = field(init=False, default=0, repr=False)
    _policy: Any = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.parts) < 2 or len(set(self.parts)) < len(self.parts):
            raise BadInputError("needs at least two different parts", field="reward.parts")
        self.weights = dict.fromkeys(self.parts, 1 / len(self.parts))
        self._sums = [0.0] * len(self.parts)

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError where its log-probs would be of another distribution than the one that is trained."""
        if self.temperature != recipe.sampling.temperature:
            raise BadInputError(
                f"is not sampling.temperature, {recipe.sampling.temperature}", field="reward.temperature"
            )

    def attach(self, policy: Policy) -> None:
        """Raises BadInputError where no trained weight is in the layers."""
        self._policy = policy
        self._selected()

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        return weighted_sum(parts, self.weights)

    def observe(self, report: StepReport) -> None:
        """Add the step's influences; after `accumulate` steps move the weights."""
        if report.trained is None:
            return
        batch = report.trained.select(range(min(self.rows, len(report.trained))))
        advantages = [dr_grpo(named_part(batch.r_parts, name), batch.group) for name in self.parts]
        if any(bool(named_part(batch.r_parts, name).isnan().all()) for name in self.parts):
            return
        if self.normalise:
            advantages = [unit_deviation(advantage) for advantage in advantages]
        influences = influence(self._gradients(batch, advantages)).tolist()
        self._sums = [total + i for total, i in zip(self._sums, influences, strict=True)]
        self._steps += 1
        if self._steps < self.accumulate:
            return
        means = [total / self._steps for total in self._sums]
        self.weights = dict(
            zip(self.parts, updated_weights([self.weights[name] for name in self.parts], means, self.rate), strict=True)
        )
        self._sums, self._steps = [0.0] * len(self.parts), 0

    def _selected(self) -> list[Tensor]:
        assert self._policy is not None  # attached before the first step
        chosen: list[Tensor] = [
            p
            for name, p in self._policy.trainable().items()
            if not self.layers or any(text in name for text in self.layers)
        ]
        if not chosen:
            raise BadInputError(f"no trained weight holds {', '.join(self.layers)}", field="reward.layers")
        return chosen

    def _gradients(self, batch: RolloutBatch, advantages: Sequence[Tensor]) -> Tensor:
        """[K,P] gradient of the mean over tokens of advantage x log-prob, one row for each reward."""
        assert self._policy is not None  # attached before the first step
        selected = self._selected()
        totals = [torch.zeros(sum(p.numel() for p in selected), device=selected[0].device) for _ in advantages]
        tokens = max(1, int(batch.loss_mask.sum()))
        with torch.enable_grad():
            limits, shared = PassLimits.of(self, self._policy.device), can_pack(self._policy.model)
            for rows in micro_batches(batch, torch.arange(len(batch)), limits=limits, shared=shared):
                part = batch.select(rows)
                logp = self._policy.scores(part, temperature=self.temperature).logp
                mask = part.loss_mask.to(logp.device)
                for number, advantage in enumerate(advantages):
                    gain = (advantage[rows].to(logp)[:, None] * logp * mask).sum() / tokens
                    gradients = torch.autograd.grad(
                        gain, selected, retain_graph=number + 1 < len(advantages), allow_unused=True
                    )
                    flat = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, selected, strict=True)]
                    totals[number] += torch.cat([g.flatten().float() for g in flat])
        return torch.stack(totals)

    def numbers(self) -> dict[str, float]:
        return {f"reward_weight_{name}": weight for name, weight in self.weights.items()}


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
