"""Policy-gradient methods with exact gradients, one update at a time.

Covers: policy mirror descent with both usual distances (entropy: natural policy gradient, also of a softmax policy;
squares: projected Q-ascent), projected policy gradient, softmax policy gradient, entropy-regularised natural policy
gradient and soft policy iteration, Hadamard parametrisation, geometric step sizes. Leaves out: estimates instead of
exact values (`temporal_difference`).

What the papers claim, and tests/oracles/policy_training/test_tabular_rates.py reproduces: softmax policy gradient is
sublinear, O(1/k); natural policy gradient is linear for any constant step; projected policy gradient ends exactly
after finitely many large steps; steps growing like discount^-k are linear at least at the rate of the discount;
entropy-regularised natural policy gradient contracts like (1 - step * temperature)^2 near its optimum, soft policy
iteration quadratically; the Hadamard form is linear in the end and diverges for large steps.

Sources (abstracts read, update rules standard): arXiv 2404.03372 (projected, softmax, natural, entropy, soft policy
iteration), 2305.19575 (Hadamard); titles recalled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from assay.errors import BadInputError
from tabular.decision_process import Array, DecisionProcess, log, project, softmax

LARGEST_STEP = 1e6  #: a geometric step size stops growing here


class TabularMethod(Protocol):
    """Policies [S,A], the uniform one first, each made from the one before."""

    def policies(self, process: DecisionProcess) -> Iterator[Array]: ...


def gaps(method: TabularMethod, process: DecisionProcess, steps: int) -> Array:
    """[steps + 1] how much less than the optimum each policy earns from the start, the uniform one's first."""
    best = float(process.start @ process.optimum())
    policies = zip(range(steps + 1), method.policies(process), strict=False)
    return np.array([best - process.evaluate(policy).start_value for _, policy in policies])


@dataclass(frozen=True)
class MirrorDescent:
    """argmax_p step <p, Q> - distance(p, policy) in every state.

    `distance` entropy: policy x exp(step Q), the natural policy gradient; squares: the projection of policy + step Q.
    `growth` 1/discount or more makes the steps geometric.
    """

    step: float = 1.0
    distance: str = "entropy"
    growth: float = 1.0

    def __post_init__(self) -> None:
        if self.distance not in ("entropy", "squares"):
            raise BadInputError(f"entropy or squares, not {self.distance!r}", field="distance")
        if not (self.step > 0 and self.growth >= 1):
            raise BadInputError("step must be above 0 and growth at least 1", field="step")

    def policies(self, process: DecisionProcess) -> Iterator[Array]:
        policy, step = process.uniform, self.step
        while True:
            yield policy
            actions = process.evaluate(policy).actions
            if self.distance == "entropy":
                policy = softmax(log(policy) + step * actions)
            else:
                policy = project(policy + step * actions)
            step = min(step * self.growth, LARGEST_STEP)


@dataclass(frozen=True)
class ProjectedGradient:
    """The gradient in the probabilities themselves, visits(s) Q / (1 - discount), projected back."""

    step: float = 1.0

    def policies(self, process: DecisionProcess) -> Iterator[Array]:
        def update(policy: Array) -> Array:
            evaluation = process.evaluate(policy)
            return project(
                policy + self.step / (1 - process.discount) * evaluation.visits[:, None] * evaluation.actions
            )

        return _iterated(process.uniform, update)


@dataclass(frozen=True)
class SoftmaxGradient:
    """The gradient in the logits, visits(s) policy(a|s) advantage(s,a) / (1 - discount)."""

    step: float = 1.0

    def policies(self, process: DecisionProcess) -> Iterator[Array]:
        logits = np.zeros_like(process.rewards)
        while True:
            policy = softmax(logits)
            yield policy
            evaluation = process.evaluate(policy)
            slope = evaluation.visits[:, None] * policy * evaluation.advantages(policy) / (1 - process.discount)
            logits = logits + self.step * slope


@dataclass(frozen=True)
class SoftmaxNaturalGradient:
    """Logits + step x advantages: mirror descent with the entropy distance, in another parametrisation."""

    step: float = 1.0

    def policies(self, process: DecisionProcess) -> Iterator[Array]:
        logits = np.zeros_like(process.rewards)
        while True:
            policy = softmax(logits)
            yield policy
            logits = logits + self.step * process.evaluate(policy).advantages(policy)


@dataclass(frozen=True)
class EntropyNaturalGradient:
    """policy^(1 - step temperature) x exp(step Q) with the entropy bonus in Q; step = 1/temperature is soft policy
    iteration."""

    step: float
    temperature: float

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and 0 < self.step * self.temperature <= 1):
            raise BadInputError("temperature must be above 0 and step at most 1/temperature", field="step")

    def policies(self, process: DecisionProcess) -> Iterator[Array]:
        def update(policy: Array) -> Array:
            actions = process.evaluate(policy, self.temperature).actions
            return softmax((1 - self.step * self.temperature) * log(policy) + self.step * actions)

        return _iterated(process.uniform, update)

    def errors(self, process: DecisionProcess, steps: int) -> Array:
        """[steps + 1] mean distance of the regularised values from their optimum."""
        best = process.optimum(self.temperature)
        policies = zip(range(steps + 1), self.policies(process), strict=False)
        return np.array(
            [float(np.abs(best - process.evaluate(p, self.temperature).values).mean()) for _, p in policies]
        )


@dataclass(frozen=True)
class HadamardGradient:
    """policy = x * x with rows of norm 1; the gradient in x, then normalised. Large steps lose coordinates for good."""

    step: float = 0.05

    def policies(self, process: DecisionProcess) -> Iterator[Array]:
        root = np.sqrt(process.uniform)
        while True:
            policy = root * root
            yield policy
            evaluation = process.evaluate(policy)
            slope = 2 / (1 - process.discount) * evaluation.visits[:, None] * root * evaluation.advantages(policy)
            root = root + self.step * slope
            root = root / np.linalg.norm(root, axis=1, keepdims=True)


def _iterated(first: Array, update: Callable[[Array], Array]) -> Iterator[Array]:
    policy = first
    while True:
        yield policy
        policy = update(policy)
