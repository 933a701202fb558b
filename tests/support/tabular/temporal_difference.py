"""Policy mirror descent on an estimate of Q that one Bellman step a round keeps up, exactly or from samples.

Covers: expected TD-PMD (the Bellman step is exact, weighted by a fixed behaviour distribution) and approximate TD-PMD
(the step is taken at sampled state-action pairs of a mixed behaviour policy). There is no inner evaluation loop.

Source: mirror descent with temporal-difference learning, arXiv 2512.24056 (abstract read; update rules standard).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay.errors import BadInputError
from tabular.decision_process import Array, DecisionProcess, log, softmax


@dataclass(frozen=True)
class ExpectedTemporalDifference:
    """Q += rate * weight(s,a) * (r + discount P V - Q), V = <policy, Q>; then policy x exp(step Q).

    `behaviour`: None weighs every pair alike (weight 1); `uniform` by the visits of the uniform policy, relative to the
    most visited pair.
    """

    rate: float = 0.5
    step: float = 1.0
    behaviour: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadInputError(f"must be in (0, 1], not {self.rate}", field="rate")
        if self.behaviour not in (None, "uniform"):
            raise BadInputError(f"none or uniform, not {self.behaviour!r}", field="behaviour")

    def estimates(self, process: DecisionProcess) -> Iterator[tuple[Array, Array]]:
        """(policy, Q) from (uniform, 0) on."""
        policy, estimate = process.uniform, np.zeros_like(process.rewards)
        weight = np.ones_like(process.rewards)
        if self.behaviour == "uniform":
            visits = process.evaluate(process.uniform).visits[:, None] * process.uniform
            weight = visits / visits.max()
        while True:
            yield policy, estimate
            values = (policy * estimate).sum(1)
            target = process.rewards + process.discount * process.transitions @ values
            estimate = estimate + self.rate * weight * (target - estimate)
            policy = softmax(log(policy) + self.step * estimate)

    def policies(self, process: DecisionProcess) -> Iterator[Array]:
        return (policy for policy, _ in self.estimates(process))


@dataclass(frozen=True)
class SampledTemporalDifference:
    """The same at `samples` transitions a round, drawn along one trajectory of the behaviour policy
    (1 - mixing) policy + mixing uniform: online Markovian data. The target uses the expected next value under policy.
    """

    seed: int
    rate: float = 0.1
    step: float = 0.1
    samples: int = 32
    mixing: float = 0.2

    def __post_init__(self) -> None:
        if not (0 < self.rate <= 1 and self.samples >= 1 and 0 < self.mixing <= 1):
            raise BadInputError("rate and mixing must be in (0, 1], samples at least 1", field="rate")

    def policies(self, process: DecisionProcess) -> Iterator[Array]:
        random = np.random.default_rng(self.seed)
        states, actions = process.rewards.shape
        policy, estimate = process.uniform, np.zeros_like(process.rewards)
        state = int(random.choice(states, p=process.start))
        while True:
            yield policy
            acting = (1 - self.mixing) * policy + self.mixing * process.uniform
            for _ in range(self.samples):
                action = int(random.choice(actions, p=acting[state]))
                reached = int(random.choice(states, p=process.transitions[state, action]))
                target = process.rewards[state, action] + process.discount * float(policy[reached] @ estimate[reached])
                estimate[state, action] += self.rate * (target - estimate[state, action])
                state = reached
            policy = softmax(log(policy) + self.step * estimate)
