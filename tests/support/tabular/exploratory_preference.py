"""XPO on a bandit: online DPO whose loss has a bonus for exploration, where the reference hardly covers the best.

Covers: Exploratory Preference Optimization (arXiv 2405.21046; abstract read, loss as in TRL's XPO trainer). Pairs are a
response of the policy and one of the reference, y; the loss is DPO's + alpha x the sum of log pi(y). Claim: the policy
nears the optimum whatever the reference covers; online DPO (alpha 0) needs luck. With pi = ref exp(r / beta) / Z the
loss is one of implicit rewards r, which are bounded, as the paper's policies are. It is not convex, so its minimum is
looked for with each response that was never compared at the bound, too; alpha 0 does not depend on those.
Tested in tests/oracles/policy_training/test_tabular_ideas.py.

Leaves out: the schedule of alpha, the bound on regret, language models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from tabular.decision_process import Array


@dataclass(frozen=True)
class ExploratoryPreference:
    alpha: float
    beta: float = 0.2
    bound: float = 4.0  #: of the implicit rewards
    rounds: int = 30
    labels: int = 10  #: a round

    def regret(self, rewards: Array, reference: Array, rng: np.random.Generator) -> Array:
        """By round: KL-regularised value of the best policy less that of the one that responses are drawn from."""
        size, log_ref = len(rewards), np.log(reference)
        implicit: Array = np.zeros(size)
        wins, drawn = np.zeros((size, size)), np.zeros(size)
        best = self.beta * np.log(reference @ np.exp(rewards / self.beta))
        lost = np.zeros(self.rounds)
        for step in range(self.rounds):
            policy = softmax(log_ref + implicit / self.beta)
            lost[step] = best - policy @ (rewards - self.beta * (np.log(policy) - log_ref))
            own, other = (rng.choice(size, self.labels, p=p) for p in (policy, reference))
            preferred = rng.random(self.labels) < 1 / (1 + np.exp(rewards[other] - rewards[own]))
            np.add.at(wins, (np.where(preferred, own, other), np.where(preferred, other, own)), 1)
            np.add.at(drawn, other, 1)
            implicit = self.fit(implicit, log_ref, wins, drawn)
        return lost

    def fit(self, start: Array, log_ref: Array, wins: Array, drawn: Array) -> Array:
        untried = np.flatnonzero((wins + wins.T).sum(axis=0) == 0) if self.alpha else ()
        starts = [start, *(np.where(np.arange(len(start)) == row, self.bound, start) for row in untried)]
        bounds = [(-self.bound, self.bound)] * len(start)
        ends = [minimize(self.loss, x, (log_ref, wins, drawn), jac=True, bounds=bounds) for x in starts]
        return np.asarray(min(ends, key=lambda end: end.fun).x)

    def loss(self, implicit: Array, log_ref: Array, wins: Array, drawn: Array) -> tuple[float, Array]:
        """And its gradient. `wins` [K, K]: how often the row was preferred to the column; `drawn` [K]: by the
        reference."""
        margin = implicit[:, None] - implicit[None, :]
        policy = softmax(log_ref + implicit / self.beta)
        loss = (wins * np.logaddexp(0, -margin)).sum() + self.alpha * (drawn * np.log(policy)).sum()
        pull = wins / (1 + np.exp(margin))
        bonus = self.alpha / self.beta * (drawn - drawn.sum() * policy)
        return float(loss), np.asarray(pull.sum(axis=0) - pull.sum(axis=1) + bonus)
