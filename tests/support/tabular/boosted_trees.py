"""Actor and critic as boosted trees: each update adds a tree fitted to the gradients of what the trees predict.

Covers: GBRL (arXiv 2407.08250; abstract and the library's README read): functional gradients of policy and value,
trees added while the agent acts, one structure shared by actor and critic with a rate each, symmetric (oblivious) trees
by the L2 score. Claims: sharing needs half the trees for the same return; on categorical observations trees keep to the
features that matter, so combinations never met are handled. Tested in
tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: PPO's clip (one step of REINFORCE with a baseline a batch), numerical features, the comparison with neural
networks on the paper's environments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tabular.decision_process import Array, softmax

Categories = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SymmetricTree:
    """`splits`: (feature, category), the same at every node of a depth; `leaves` [2^depth, outputs]."""

    splits: tuple[tuple[int, int], ...]
    leaves: Array

    def predict(self, observations: Categories) -> Array:
        """[N, outputs] of `observations` [N, features]."""
        outputs: Array = self.leaves[leaf_of(self.splits, observations)]
        return outputs


def leaf_of(splits: tuple[tuple[int, int], ...], observations: Categories) -> Categories:
    leaf = np.zeros(len(observations), dtype=np.int64)
    for feature, category in splits:
        leaf = 2 * leaf + (observations[:, feature] == category)
    return leaf


def grow(observations: Categories, gradients: Array, depth: int) -> SymmetricTree:
    """Greedy: each depth takes the split with the largest sum of squared leaf sums over leaf sizes (L2 score)."""
    splits: tuple[tuple[int, int], ...] = ()
    candidates = [(f, int(c)) for f in range(observations.shape[1]) for c in np.unique(observations[:, f])]
    holds = np.stack([observations[:, f] == c for f, c in candidates], axis=1).astype(np.float64)
    for _ in range(depth):
        leaf, scores = leaf_of(splits, observations), np.zeros(len(candidates))
        for node in np.unique(leaf):
            within, slopes = holds[leaf == node], gradients[leaf == node]
            sums, sizes = within.T @ slopes, within.sum(axis=0)
            rest, rest_sizes = slopes.sum(axis=0) - sums, len(within) - sizes
            scores += (sums**2).sum(axis=1) / np.maximum(sizes, 1)
            scores += (rest**2).sum(axis=1) / np.maximum(rest_sizes, 1)
        splits = (*splits, candidates[int(scores.argmax())])
    leaf = leaf_of(splits, observations)
    sizes = np.bincount(leaf, minlength=2**depth)
    sums = np.stack([np.bincount(leaf, column, 2**depth) for column in gradients.T], axis=1)
    return SymmetricTree(splits, sums / np.maximum(sizes, 1)[:, None])


@dataclass
class BoostedActorCritic:
    """Policy scores and a value for categorical observations; `trees` counts both parts' trees."""

    actions: int
    shared: bool = True
    policy_rate: float = 1.0
    value_rate: float = 0.3
    depth: int = 2
    ensemble: list[tuple[SymmetricTree, Array]] = field(default_factory=list)

    @property
    def trees(self) -> int:
        return len(self.ensemble)

    def predict(self, observations: Categories) -> tuple[Array, Array]:
        """([N,A] action probabilities, [N] values)."""
        total = np.zeros((len(observations), self.actions + 1))
        for tree, rates in self.ensemble:
            total += rates * tree.predict(observations)
        return softmax(total[:, :-1]), total[:, -1]

    def update(self, observations: Categories, action: Categories, reward: Array) -> None:
        """One batch of single steps: ascends (reward - value) * log policy and -(reward - value)^2 / 2."""
        policy, values = self.predict(observations)
        advantage = (reward - values)[:, None]
        gradients = np.concatenate([(np.eye(self.actions)[action] - policy) * advantage, advantage], axis=1)
        actor = np.array([self.policy_rate] * self.actions + [0.0])
        critic = np.array([0.0] * self.actions + [self.value_rate])
        if self.shared:
            self.ensemble.append((grow(observations, gradients, self.depth), actor + critic))
        else:
            self.ensemble.append((grow(observations, gradients * (actor > 0), self.depth), actor))
            self.ensemble.append((grow(observations, gradients * (critic > 0), self.depth), critic))

    def learn(self, contexts: Categories, best: Categories, *, batches: int, size: int, seed: int) -> None:
        """Acts in `contexts` [N, features] drawn evenly; reward 1 for the action `best` [N], else 0."""
        random = np.random.default_rng(seed)
        for _ in range(batches):
            row = random.integers(len(contexts), size=size)
            chances = self.predict(contexts[row])[0].cumsum(axis=1)
            action = np.minimum((random.random((size, 1)) > chances).sum(axis=1), self.actions - 1)
            self.update(contexts[row], action, (action == best[row]).astype(np.float64))

    def earned(self, contexts: Categories, best: Categories) -> float:
        """Mean probability of the best action."""
        return float(self.predict(contexts)[0][np.arange(len(best)), best].mean())
