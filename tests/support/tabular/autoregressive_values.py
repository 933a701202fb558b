"""Soft Q-values of a many-part action, one part after the other: each part knows those before it.

Covers: ARSQ (arXiv 2502.00288; abstract and the project page's example read, the normalisation recalled): actions are
refined coarse to fine, dimension by dimension; Q = V + sum of soft advantages, each normalised over its own choices
given those before, so that sampling part by part draws from softmax(Q / temperature). Claim: where one dimension of the
best mode is shared with a worse and commoner one, values of each dimension alone miss the best mode, and these do not.
Tested in tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: networks, several steps (a task of one step, as in the page's example), demonstrations' imitation loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tabular.decision_process import Array

Prefix = tuple[int, ...]


def soft_maximum(scores: Array, temperature: float, axis: tuple[int, ...] | int = -1) -> Array:
    """temperature * log sum exp(scores / temperature) along `axis`."""
    top = scores.max(axis, keepdims=True)
    totals = np.log(np.exp((scores - top) / temperature).sum(axis))
    soft: Array = np.squeeze(top, axis) + temperature * totals
    return soft


def decompose(q: Array, temperature: float) -> tuple[float, list[Array]]:
    """V and the advantages of a joint table `q` [B_1,...,B_D]: the d-th is [B_1,...,B_d], soft-normalised over B_d."""
    after = [soft_maximum(q, temperature, tuple(range(d, q.ndim))) for d in range(q.ndim)] + [q]
    return float(after[0]), [after[d + 1] - after[d][..., None] for d in range(q.ndim)]


def refine(actions: npt.NDArray[np.int64], bins: int, levels: int) -> list[Prefix]:
    """Of `actions` [N,D], cells of a grid of bins^levels: their choices, all dimensions of the coarsest level first."""
    digits = [(actions // bins ** (levels - 1 - level)) % bins for level in range(levels)]
    return [tuple(int(choice) for level in digits for choice in level[n]) for n in range(len(actions))]


@dataclass
class AutoregressiveValues:
    """Fitted to (choices, reward) rows by gradient steps on the squared error of V + sum of advantages."""

    bins: int
    temperature: float = 0.1
    rate: float = 0.2
    value: float = 0.0
    scores: dict[Prefix, Array] = field(default_factory=dict)

    def advantages(self, prefix: Prefix) -> Array:
        """[bins] of the next choice: <= 0, and soft_maximum 0."""
        scores = self.scores.setdefault(prefix, np.zeros(self.bins))
        return scores - soft_maximum(scores, self.temperature)

    def q(self, choices: Prefix) -> float:
        return self.value + float(sum(self.advantages(choices[:d])[c] for d, c in enumerate(choices)))

    def fit(self, rows: Sequence[Prefix], rewards: Array, epochs: int) -> None:
        """The gradient of an advantage in its scores is one_hot - softmax(scores / temperature)."""
        for _ in range(epochs):
            for choices, reward in zip(rows, rewards, strict=True):
                step = self.rate * (float(reward) - self.q(choices)) / (len(choices) + 1)
                self.value += step
                for d, choice in enumerate(choices):
                    chances = np.exp(self.advantages(choices[:d]) / self.temperature)
                    self.scores[choices[:d]] += step * (np.eye(self.bins)[choice] - chances)

    def best(self, length: int) -> Prefix:
        """The choice of the largest advantage, part by part."""
        choices: Prefix = ()
        for _ in range(length):
            choices += (int(self.advantages(choices).argmax()),)
        return choices


def independent_best(rows: Sequence[Prefix], rewards: Array, dimensions: int) -> Prefix:
    """What values of each dimension alone choose: by level, the bin with the largest mean reward among rows that agree
    on the levels before in that dimension.
    """
    table = np.array(rows)
    choices = np.zeros(table.shape[1], dtype=np.int64)
    for d in range(table.shape[1]):
        before = np.arange(d % dimensions, d, dimensions)
        agreeing = (table[:, before] == choices[before]).all(axis=1)
        seen = np.unique(table[agreeing, d])
        means = [rewards[agreeing & (table[:, d] == choice)].mean() for choice in seen]
        choices[d] = seen[int(np.argmax(means))]
    return tuple(int(choice) for choice in choices)
