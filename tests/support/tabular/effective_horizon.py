"""How far one must look beyond the random policy's values: the effective horizon, and SQIRL, which it predicts.

Covers: arXiv 2312.08369 (abstract read; the form of the bound recalled): a task is k-QVI-solvable where k - 1 steps of
value iteration on the random policy's Q, then acting greedily, are optimal; the effective horizon is the least
k + log_A(1 / gap_k^2); SQIRL explores at random, regresses, and backs up k - 1 times. Claim: on tasks of one size,
which bounds by states, actions and steps cannot tell apart, the effective horizon predicts where SQIRL succeeds. Tested
in tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: generalising regression (means by state and action), PPO and DQN, whose correlation the paper reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tabular.decision_process import Array

Choices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EpisodicTask:
    """`transitions` [S,A,S], `rewards` [S,A], `steps` of an episode that begins in state 0; normal `noise` of that
    standard deviation is on every reward that is sampled."""

    transitions: Array
    rewards: Array
    steps: int
    noise: float = 0.0

    def iterated(self, k: int) -> Array:
        """[steps,S,A] Q^k: the random policy's Q after k - 1 steps of value iteration."""
        q = self._backed_up(best=False)
        for _ in range(k - 1):
            following = np.concatenate([q[1:].max(axis=2), np.zeros((1, len(self.rewards)))])
            q = self.rewards + np.einsum("sat,ht->hsa", self.transitions, following)
        return q

    def optimal(self) -> Array:
        """[steps,S,A] Q of the optimum."""
        return self._backed_up(best=True)

    def start_value(self, policy: Choices) -> float:
        """What `policy` [steps,S] earns."""
        values, every = np.zeros(len(self.rewards)), np.arange(len(self.rewards))
        for t in reversed(range(self.steps)):
            values = (self.rewards + self.transitions @ values)[every, policy[t]]
        return float(values[0])

    def _backed_up(self, *, best: bool) -> Array:
        q = np.empty((self.steps, *self.rewards.shape))
        values: Array = np.zeros(len(self.rewards))
        for t in reversed(range(self.steps)):
            q[t] = self.rewards + self.transitions @ values
            values = q[t].max(1) if best else q[t].mean(1)
        return q

    def visited(self, policy: Choices) -> npt.NDArray[np.bool_]:
        """[steps,S] states that `policy` reaches."""
        chance = np.zeros((self.steps, len(self.rewards)))
        chance[0, 0] = 1
        for t in range(self.steps - 1):
            chance[t + 1] = chance[t] @ self.transitions[np.arange(len(self.rewards)), policy[t]]
        return chance > 0


def effective_horizon(task: EpisodicTask) -> tuple[int, float]:
    """(k, H): of the k for which greedy on Q^k is optimal, the one with the least H = k + log_A(1 / gap_k^2).

    gap_k: the least difference, among states reached, of the best action's Q^k from that of actions which are not
    optimal, relative to the optimum's value. k = steps always qualifies.
    """
    optimal = task.optimal()
    best = float(optimal[0, 0].max())
    good = optimal >= optimal.max(2, keepdims=True) - 1e-9
    horizons = []
    for k in range(1, task.steps + 1):
        q = task.iterated(k)
        policy = q.argmax(2)
        if task.start_value(policy) < best - 1e-9:
            continue
        reached = task.visited(policy)
        worse = np.where(good, -np.inf, q).max(2)
        gap = float(np.where(reached, q.max(2) - worse, np.inf).min()) / best
        if gap > 1e-12:
            horizons.append((k + np.log(1 / min(gap, 1.0) ** 2) / np.log(task.rewards.shape[1]), k))
    least, k = min(horizons)
    return k, float(least)


def sqirl(task: EpisodicTask, k: int, rollouts: int, *, seed: int) -> Choices:
    """[steps,S] the policy learnt from `rollouts` episodes for each step: greedy so far, random from there.

    Returns from k - 1 steps ahead are averaged by state and action; k - 1 times, r + max Q of what followed is.
    """
    random = np.random.default_rng(seed)
    states, actions = task.rewards.shape
    cumulative = task.transitions.cumsum(axis=2)
    policy = np.zeros((task.steps, states), dtype=np.int64)
    for step in range(task.steps):
        state = np.zeros((task.steps + 1, rollouts), dtype=np.int64)
        action = random.integers(actions, size=(task.steps, rollouts))
        for t in range(task.steps):
            if t < step:
                action[t] = policy[t, state[t]]
            drawn = random.random((rollouts, 1))
            reached = (drawn > cumulative[state[t], action[t]]).sum(axis=1)
            state[t + 1] = np.minimum(reached, states - 1)
        reward = task.rewards[state[:-1], action] + task.noise * random.normal(size=action.shape)
        leaf = min(step + k - 1, task.steps - 1)
        target = reward[leaf:].sum(axis=0)
        for t in range(leaf, step - 1, -1):
            pair = state[t] * actions + action[t]
            seen = np.bincount(pair, minlength=states * actions)
            sums = np.bincount(pair, target, states * actions)
            q = np.where(seen > 0, sums / np.maximum(seen, 1), -np.inf).reshape(states, actions)
            if t > step:
                target = reward[t - 1] + q[state[t]].max(axis=1)
        policy[step] = q.argmax(axis=1)
    return policy


def lock(depth: int, decoy: float, *, seed: int, steps: int = 5, actions: int = 3, noise: float = 0.5) -> EpisodicTask:
    """`depth` right actions in a row earn 1; a wrong one ends the task, and earns `decoy` if it is the first. Which is
    right depends on the place and on a coin that every step tosses. 2 * steps + 1 states, whatever the depth.
    """
    end = 2 * steps
    right = np.random.default_rng(seed).integers(actions, size=end)
    transitions, rewards = np.zeros((end + 1, actions, end + 1)), np.zeros((end + 1, actions))
    transitions[..., end] = 1.0
    rewards[0] = decoy
    for state in range(2 * depth):
        last = state // 2 + 1 == depth
        rewards[state, right[state]] = float(last)
        if not last:
            after = 2 * (state // 2) + 2
            transitions[state, right[state]] = 0.5 * (np.eye(end + 1)[after] + np.eye(end + 1)[after + 1])
    return EpisodicTask(transitions, rewards, steps, noise)
