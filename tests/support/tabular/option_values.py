"""Values over options: one temporal-difference step spans several steps, so far states keep the sign of advantages.

Covers: OTA, option-aware temporally abstracted values (arXiv 2505.12737; abstract and project page read, the form of
reward and target recalled): each target spans `option` steps of recorded data, costs -1 once, and ends at the goal.
Claim: with one-step values the sign of a subgoal's advantage is lost far from the goal; with options, whose effective
horizon is the distance divided by their length, it stays right. Tested in
tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: the low-level policy, policy extraction, goals other than one, function approximation: the noise here is
that of sampled targets under a constant rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from tabular.decision_process import Array

States = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OptionValues:
    """Goal-reaching values by expectile temporal-difference steps (HIQL's) over options of `option` steps."""

    option: int = 1
    discount: float = 0.97
    rate: float = 0.2
    expectile: float = 0.7  #: weight of positive errors; 0.5 evaluates the recorded behaviour
    batches: int = 600
    batch_size: int = 256

    def __post_init__(self) -> None:
        if self.option < 1:
            raise BadInputError(f"must be at least 1, not {self.option}", field="option")

    def exact(self, distance: Array) -> Array:
        """Of the shortest way: -(1 - discount^n) / (1 - discount) with n = ceil(distance / option)."""
        values: Array = -(1 - self.discount ** np.ceil(distance / self.option)) / (1 - self.discount)
        return values

    def learn(self, walks: States, goal: int, states: int, *, seed: int) -> Array:
        """[states] V(., goal) from `walks` [N,T]. A target is -1 + discount * V(end of option), with V(goal) = 0;
        an option that meets the goal on its way ends there.
        """
        random = np.random.default_rng(seed)
        length = walks.shape[1] - self.option
        windows = np.lib.stride_tricks.sliding_window_view(walks, self.option + 1, axis=1)
        begins, ends = windows[..., 0], windows[..., -1]
        arrived = (windows[..., 1:] == goal).any(axis=-1)
        values: Array = np.zeros(states)
        for _ in range(self.batches):
            row = random.integers(len(walks), size=self.batch_size)
            column = random.integers(length, size=self.batch_size)
            state = begins[row, column]
            target = -1 + self.discount * np.where(arrived[row, column], 0.0, values[ends[row, column]])
            error = target - values[state]
            error *= np.where(error > 0, self.expectile, 1 - self.expectile) * (state != goal)
            visits = np.bincount(state, minlength=states)
            values += self.rate * np.bincount(state, error, states) / np.maximum(visits, 1)
        return values


def noisy_walks(states: int, count: int, length: int, *, forward: float, seed: int) -> States:
    """[count, length] walks on a line from uniform starts, one state forward with that probability, else back; both
    ends hold.
    """
    random = np.random.default_rng(seed)
    walks = np.empty((count, length), dtype=np.int64)
    walks[:, 0] = random.integers(states, size=count)
    for t in range(1, length):
        moves = np.where(random.random(count) < forward, 1, -1)
        walks[:, t] = np.clip(walks[:, t - 1] + moves, 0, states - 1)
    return walks


def sign_accuracy(values: Array, goal: int, reach: int) -> Array:
    """[goal - reach] whether V(s + reach) > V(s), as it must be for a subgoal `reach` steps nearer to the goal."""
    right: Array = (values[reach:goal] > values[: goal - reach]).astype(np.float64)
    return right
