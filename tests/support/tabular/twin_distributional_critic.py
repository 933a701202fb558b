"""Twin critics of Gaussian returns, with each refinement of DSAC-T as a switch.

Covers: DSAC-T (arXiv 2310.05858; official code read): expected value substitution (the mean's target uses the next
mean, not a sample), twin value distributions (the next value is that of the critic with the smaller mean), and the
variance-based adjustment (gradients times mean variance over own variance; deviations clipped at three mean standard
deviations). Claims: the critic without the first two overestimates, and with them does not; with the adjustment one
rate serves every scale of rewards. Tested in tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: the actor and its entropy (the policy is greedy on the smaller mean), networks, Huber's loss. Departures:
the variance's error is (target - mean)^2 - std^2, where the code halves the square; the code's bias of 0.1 under the
variance, which is not free of scale, is left out; twins, which networks tell apart by their start, differ by which half
of the updates they see.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tabular.decision_process import Array, DecisionProcess


@dataclass(frozen=True)
class GaussianCritic:
    """Learns Q of the greedy policy from one sampled transition of every pair a round, for `runs` seeds at once."""

    twin: bool = True
    expected: bool = True
    adjusted: bool = True
    rate: float = 0.02
    mixing: float = 0.02  #: of the running mean of standard deviations
    rounds: int = 1000

    def means(self, process: DecisionProcess, *, noise: float, scale: float, runs: int, seed: int) -> Array:
        """[runs,S,A] the smaller mean (of one critic: its own). Rewards have normal noise of standard deviation
        `noise`, then all are multiplied by `scale`. Standard deviations begin at 1, whatever the scale.
        """
        random = np.random.default_rng(seed)
        states, actions = process.rewards.shape
        critics = 2 if self.twin else 1
        mean = np.zeros((critics, runs, states, actions))
        std = np.ones_like(mean)
        typical = np.ones(critics)
        cumulative = process.transitions.cumsum(axis=2)
        run = np.arange(runs)[:, None, None]
        for _ in range(self.rounds):
            drawn = random.random((runs, states, actions, 1))
            reached = np.minimum((drawn > cumulative).sum(axis=3), states - 1)
            reward = scale * (process.rewards + noise * random.normal(size=reached.shape))
            action = mean.min(axis=0).argmax(axis=2)[run, reached]
            following = mean[:, run, reached, action]
            lesser = following.argmin(axis=0)[None]
            center = np.take_along_axis(following, lesser, 0)[0]
            spread = np.take_along_axis(std[:, run, reached, action], lesser, 0)[0]
            sample = center + spread * np.clip(random.normal(size=spread.shape), -3, 3)
            target = reward + process.discount * (center if self.expected else sample)
            deviation = reward + process.discount * sample - mean
            typical = (1 - self.mixing) * typical + self.mixing * std.mean(axis=(1, 2, 3))
            if self.adjusted:
                bound = 3 * typical[:, None, None, None]
                deviation = np.clip(deviation, -bound, bound)
                weight = np.clip(typical[:, None, None, None] ** 2 / std**2, 0.1, 10)
            else:
                weight = 1 / std**2  # of the Gaussian likelihood
            seen = random.random(mean.shape) < 0.5 if self.twin else np.ones(mean.shape, dtype=bool)
            mean = mean + seen * self.rate * weight * (target - mean)
            grown = std + seen * self.rate * weight * (deviation**2 - std**2) / std
            std = np.maximum(grown, std / 10)  # stays positive, whatever the scale
        smaller: Array = mean.min(axis=0)
        return smaller


def optimal_actions(process: DecisionProcess) -> Array:
    """[S,A] Q of the optimum."""
    values: Array = process.rewards + process.discount * process.transitions @ process.optimum()
    return values
