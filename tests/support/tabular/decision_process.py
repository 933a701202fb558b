"""Finite Markov decision processes with exact evaluation: linear systems instead of samples.

Covers: values, advantages and state visits of a policy, with or without an entropy bonus, the optimum, random ones.
Leaves out: learning (`methods`, `temporal_difference`). Everything is float64; S states, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInputError

Array: TypeAlias = NDArray[np.float64]
SMALLEST = 1e-300  #: a probability below this counts as this in a logarithm


@dataclass(frozen=True, eq=False)
class DecisionProcess:
    """`transitions` [S,A,S] (rows sum to 1), `rewards` [S,A], `start` [S] (sums to 1), discount in [0,1)."""

    transitions: Array
    rewards: Array
    start: Array
    discount: float

    def __post_init__(self) -> None:
        states, actions = self.rewards.shape
        if self.transitions.shape != (states, actions, states) or self.start.shape != (states,):
            raise BadInputError(f"shapes disagree: transitions {self.transitions.shape}, rewards {self.rewards.shape}")
        if not (np.allclose(self.transitions.sum(2), 1) and np.isclose(self.start.sum(), 1)):
            raise BadInputError("probabilities must sum to 1", field="transitions")
        if not 0 <= self.discount < 1:
            raise BadInputError(f"must be in [0, 1), not {self.discount}", field="discount")

    @property
    def uniform(self) -> Array:
        """[S,A] every action equally likely."""
        return np.full(self.rewards.shape, 1 / self.rewards.shape[1])

    def evaluate(self, policy: Array, temperature: float = 0.0) -> Evaluation:
        """Exact values of `policy` [S,A]; each action earns -temperature * log policy(a|s) besides its reward."""
        earned = self.rewards - temperature * log(policy) if temperature else self.rewards
        between = np.einsum("sa,sat->st", policy, self.transitions)
        system = np.eye(len(self.start)) - self.discount * between
        values = np.linalg.solve(system, (policy * earned).sum(1))
        actions = self.rewards + self.discount * self.transitions @ values
        visits = (1 - self.discount) * np.linalg.solve(system.T, self.start)
        return Evaluation(values, actions, visits, float(self.start @ values))

    def optimum(self, temperature: float = 0.0) -> Array:
        """[S] values of the best policy: (soft) value iteration, then its greedy policy evaluated exactly."""
        values: Array = np.zeros(len(self.start))
        while True:
            actions = self.rewards + self.discount * self.transitions @ values
            better = temperature * log_sum_exp(actions / temperature) if temperature else actions.max(1)
            change = float(np.abs(better - values).max())
            values = better
            if change <= 1e-12 * max(1.0, float(np.abs(values).max())):
                break
        if temperature:
            return self.evaluate(softmax(actions / temperature), temperature).values
        best = np.zeros_like(self.rewards)
        best[np.arange(len(best)), actions.argmax(1)] = 1.0
        return self.evaluate(best).values

    def gap(self, policy: Array) -> float:
        """How much less than the optimum `policy` earns from the start."""
        return float(self.start @ (self.optimum() - self.evaluate(policy).values))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Of one policy. `actions`: Q without the entropy of the action itself. `visits` [S]: discounted, sums to 1."""

    values: Array  #: [S] V
    actions: Array  #: [S,A] Q = r + discount * P V
    visits: Array
    start_value: float

    def advantages(self, policy: Array) -> Array:
        """[S,A] Q - sum_a policy Q."""
        centred: Array = self.actions - (policy * self.actions).sum(1, keepdims=True)
        return centred


def random_process(states: int, actions: int, *, seed: int, discount: float = 0.9) -> DecisionProcess:
    """Dirichlet transitions, uniform rewards in [0, 1], a uniform start."""
    random = np.random.default_rng(seed)
    transitions = random.dirichlet(np.ones(states), size=(states, actions))
    return DecisionProcess(transitions, random.random((states, actions)), np.full(states, 1 / states), discount)


def log(policy: Array) -> Array:
    """Natural logarithm of probabilities, of which some may have become 0."""
    logarithms: Array = np.log(np.maximum(policy, SMALLEST))
    return logarithms


def softmax(scores: Array) -> Array:
    """[S,A] along actions."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    shares: Array = powers / powers.sum(1, keepdims=True)
    return shares


def log_sum_exp(scores: Array) -> Array:
    """[S] along actions."""
    top = scores.max(1)
    totals: Array = top + np.log(np.exp(scores - top[:, None]).sum(1))
    return totals


def project(points: Array) -> Array:
    """[S,A] the nearest point of the simplex in each row (sort and threshold)."""
    ordered = -np.sort(-points, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1
    counts = np.arange(1, points.shape[1] + 1)
    last = (ordered - excess / counts > 0).sum(1) - 1
    threshold = excess[np.arange(len(points)), last] / (last + 1)
    nearest: Array = np.maximum(points - threshold[:, None], 0)
    return nearest
