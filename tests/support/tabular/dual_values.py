"""Reinforcement learning through its dual: one unconstrained convex problem in V, whose slack is the best visitation.

Covers: Dual RL (arXiv 2302.08560; official code of f-DVL's losses read, the dual recalled): the dual-V problem with the
chi-square divergence from recorded visits, solved exactly on a finite process; f-DVL's implicit maximiser; XQL's
Gumbel regression beside it. Claims: the dual's solution is the regularised optimum (Bellman flow holds, no duality
gap) and uses only recorded actions; f-DVL's steps stay near the top of noisy samples, where Gumbel regression at a low
temperature diverges. Tested in tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: ReCOIL (imitation), dual-Q, function approximation. Departure: the code's max(y + y^2/4, 0) rises again
below -4; here the surrogate stays 0 for y < 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from assay.errors import BadInputError
from tabular.decision_process import Array, DecisionProcess


@dataclass(frozen=True, eq=False)
class DualSolution:
    """`visits` [S,A] sums to 1; primal and dual objectives, equal at the solution; largest violation of the flow."""

    values: Array
    visits: Array
    primal: float
    dual: float
    violation: float

    @property
    def policy(self) -> Array:
        """[S,A] visits, normalised; uniform in states that are never visited."""
        totals = self.visits.sum(1, keepdims=True)
        shares: Array = np.where(totals > 1e-12, self.visits / np.maximum(totals, 1e-12), 1 / self.visits.shape[1])
        return shares


def solve_dual(process: DecisionProcess, recorded: Array, strength: float) -> DualSolution:
    """min_V (1 - discount) start V + strength E_recorded f*(residual / strength), residual = r + discount P V - V.

    `recorded` [S,A]: visits of the data, sum 1. f = (t - 1)^2 on t >= 0, so f*(y) = y + y^2/4 above -2 and -1 below,
    and the visits are recorded * max(0, 1 + y/2). The primal: sum visits r - strength E_recorded f(visits / recorded).
    """
    if strength <= 0 or not np.isclose(recorded.sum(), 1):
        raise BadInputError("strength must be positive, recorded visits must sum to 1")
    start = (1 - process.discount) * process.start

    def ratio_of(values: Array) -> tuple[Array, Array]:
        y = (process.rewards + process.discount * process.transitions @ values - values[:, None]) / strength
        return y, np.maximum(0.0, 1 + y / 2)

    def flow(visits: Array) -> Array:
        arriving = np.einsum("sa,sat->t", visits, process.transitions)
        balance: Array = start + process.discount * arriving - visits.sum(1)
        return balance

    def objective(values: Array) -> tuple[float, Array]:
        y, ratio = ratio_of(values)
        conjugate = np.where(y > -2, y + y * y / 4, -1.0)
        return float(start @ values + strength * (recorded * conjugate).sum()), flow(recorded * ratio)

    first = np.zeros(len(start))
    solved = minimize(objective, first, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 5000})
    ratio = ratio_of(solved.x)[1]
    visits = recorded * ratio
    primal = float((visits * process.rewards).sum() - strength * (recorded * (ratio - 1) ** 2).sum())
    return DualSolution(solved.x, visits, primal, float(solved.fun), float(np.abs(flow(visits)).max()))


def implicit_maximum(estimates: Array, behaviour: Array, weight: float) -> float:
    """argmin_V E_behaviour[(1 - weight) V + weight * surrogate(Q - V)], surrogate(y) = y + y^2/4 for y > 0, else 0.

    The largest recorded Q as soon as weight >= 1 / (1 + its probability); `estimates` and `behaviour` are [A].
    """
    recorded = behaviour > 0
    low, high = float(estimates[recorded].min()) - 1e3, float(estimates[recorded].max())
    for _ in range(100):
        middle = (low + high) / 2
        above = estimates - middle
        slope = (1 - weight) - weight * float((behaviour * (above > 0) * (1 + above / 2)).sum())
        low, high = (middle, high) if slope < 0 else (low, middle)
    return high


def regressed_value(loss: str, samples: Array, *, strength: float, rate: float) -> float:
    """V after one gradient step a sample of Q, from 0. `strength`: f-DVL's weight, or Gumbel regression's temperature.

    `chi_square`: rate * (weight (1 + y/2) [y > 0] - (1 - weight)); `gumbel` (XQL): rate * (exp(y/beta) - 1) / beta;
    y = Q - V. May overflow to inf or nan: that is what is measured.
    """
    value = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for sample in samples:
            y = sample - value
            if loss == "chi_square":
                value += rate * (strength * (1 + y / 2) * (y > 0) - (1 - strength))
            elif loss == "gumbel":
                value += rate * (np.exp(y / strength) - 1) / strength
            else:
                raise BadInputError(f"chi_square or gumbel, not {loss!r}", field="loss")
    return float(value)
