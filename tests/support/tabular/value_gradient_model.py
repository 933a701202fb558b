"""A model of transitions that spends its capacity where the value changes.

Covers: VaGraM (arXiv 2204.01464; official code read): the squared error of each predicted dimension is weighted by the
value's gradient there, sum_d (dV/ds_d (predicted_d - next_d))^2, with the norm of gradients clipped at their 0.95
quantile. Claim: with a small model and distracting dimensions the likelihood's model misses what matters and this one
does not; with enough capacity both are alike. Tested in tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: learning the value (it is known here), ensembles, rollouts of several steps, the one-term Taylor form
(sum_d dV/ds_d error_d)^2. The model is linear of a given rank: next = state @ left @ right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.errors import BadInputError
from tabular.decision_process import Array


@dataclass(frozen=True, eq=False)
class Transitions:
    """`states` [N,D], `following` [N,D]; the value is -|s|^2 / 2 over the first `relevant` dimensions."""

    states: Array
    following: Array
    relevant: int

    def value(self, states: Array) -> Array:
        values: Array = -(states[:, : self.relevant] ** 2).sum(1) / 2
        return values

    def gradients(self) -> Array:
        """[N,D] of the value at what followed; norms above their 0.95 quantile are cut to it."""
        slopes = np.zeros_like(self.following)
        slopes[:, : self.relevant] = -self.following[:, : self.relevant]
        norms = np.linalg.norm(slopes, axis=1, keepdims=True)
        bound = np.quantile(norms, 0.95)
        clipped: Array = slopes * np.minimum(1.0, bound / np.maximum(norms, 1e-12))
        return clipped


def distracted(samples: int, *, relevant: int, distracting: int, loudness: float, seed: int) -> Transitions:
    """A rotating, shrinking relevant part beside distracting dimensions `loudness` times as large, which turn too."""
    random = np.random.default_rng(seed)

    def turned(size: int) -> Array:
        orthogonal: Array = np.linalg.qr(random.normal(size=(size, size)))[0]
        return orthogonal

    small = random.normal(size=(samples, relevant))
    loud = loudness * random.normal(size=(samples, distracting))
    states = np.concatenate([small, loud], axis=1)
    following = np.concatenate([0.9 * small @ turned(relevant), 0.9 * loud @ turned(distracting)], axis=1)
    return Transitions(states, following + 0.01 * random.normal(size=states.shape), relevant)


def fit(data: Transitions, weights: Array, rank: int, *, sweeps: int = 20, seed: int = 0) -> Array:
    """[D,D] of that rank, by alternating least squares on sum (weights * (states @ left @ right - following))^2.

    `weights` [N,D]: ones give the likelihood's model, the value's gradients VaGraM's. A ridge of 1e-6 of the largest
    weight keeps dimensions without weight at 0.
    """
    states, following = data.states, data.following
    width = states.shape[1]
    if not 1 <= rank <= width:
        raise BadInputError(f"must be in 1 to {width}, not {rank}", field="rank")
    squares = weights**2
    ridge = 1e-6 * float(squares.max()) * len(states)
    left: Array = np.random.default_rng(seed).normal(size=(width, rank))
    right: Array = np.zeros((rank, width))
    # E[state state^T] by output dimension, which both halves of a sweep use
    moments = np.einsum("nd,ni,nj->dij", squares, states, states)
    crossed = np.einsum("nd,ni,nd->di", squares, states, following)
    for _ in range(sweeps):
        for d in range(width):
            system = left.T @ moments[d] @ left + ridge * np.eye(rank)
            right[:, d] = np.linalg.solve(system, left.T @ crossed[d])
        system = np.einsum("dij,kd,ld->ikjl", moments, right, right).reshape(width * rank, width * rank)
        aim = np.einsum("di,kd->ik", crossed, right).reshape(-1)
        left = np.linalg.solve(system + ridge * np.eye(len(aim)), aim).reshape(width, rank)
    return left @ right


def value_error(data: Transitions, model: Array) -> float:
    """Root mean square of V(predicted) - V(next), relative to V's standard deviation."""
    truth = data.value(data.following)
    return float(np.sqrt(((data.value(data.states @ model) - truth) ** 2).mean()) / truth.std())
