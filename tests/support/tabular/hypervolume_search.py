"""Hyperparameters of a learner with several rewards, searched by the hypervolume of the policies that it finds.

Covers: MORL-HPO (arXiv 2310.16487; abstract read, the rest recalled): the value of a configuration is the mean
hypervolume of its Pareto front over seeds, the best of a random search is judged on seeds that the search did not see.
Claim: that is significantly better than the configuration one starts from. The learner: one value table for each of
several weights of the rewards, epsilon-greedy on the weighted sum, with one budget of episodes for all. The task: a
treasure hunt of one decision, deeper treasures are worth more and cost more, both with noise.
Tested in tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: Bayesian search, networks, more than two rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tabular.decision_process import Array

#: Value and cost of each depth; not on one line, so that several weights are needed.
TREASURES = np.array([[1.0, -1.0], [5.0, -2.0], [8.0, -3.5], [10.0, -6.0], [11.0, -9.0], [11.5, -13.0]])
REFERENCE = np.array([0.0, -15.0])  #: a point that every treasure dominates
NOISE = 3.0


@dataclass(frozen=True)
class Learner:
    """`weights`: how many, evenly from all value to all cost; they share the episodes."""

    weights: int
    rate: float
    epsilon: float

    def front(self, episodes: int, rng: np.random.Generator) -> Array:
        """[weights,2]: true value and cost of the policy of each weight."""
        chosen = []
        for share in np.linspace(0.0, 1.0, self.weights):
            scale = np.array([1.0 - share, share])
            values = np.zeros(TREASURES.shape)
            for _ in range(episodes // self.weights):
                explores = rng.random() < self.epsilon
                depth = int(rng.integers(len(values))) if explores else int((values @ scale).argmax())
                values[depth] += self.rate * (TREASURES[depth] + NOISE * rng.standard_normal(2) - values[depth])
            chosen.append(TREASURES[int((values @ scale).argmax())])
        return np.array(chosen)


def hypervolume(points: Array, reference: Array) -> float:
    """Area that the points [N,2] dominate above `reference`; both rewards are maximised."""
    area, best = 0.0, float(reference[1])
    for first, second in sorted(points.tolist(), reverse=True):
        if first > reference[0] and second > best:
            area += (first - float(reference[0])) * (second - best)
            best = second
    return area


def quality(learner: Learner, seeds: Sequence[int], episodes: int) -> Array:
    """[seeds] hypervolumes."""
    fronts = (learner.front(episodes, np.random.default_rng(seed)) for seed in seeds)
    return np.array([hypervolume(front, REFERENCE) for front in fronts])


def random_search(
    draw: Callable[[np.random.Generator], Learner], trials: int, seeds: Sequence[int], episodes: int
) -> Learner:
    """The learner of the largest mean hypervolume over `seeds`."""
    rng = np.random.default_rng(0)
    return max((draw(rng) for _ in range(trials)), key=lambda learner: float(quality(learner, seeds, episodes).mean()))
