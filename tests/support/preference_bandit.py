"""Dueling bandits in numpy, tabular and linear, on which selectors of pairs are measured; labels by Bradley-Terry.

Covers: the bandits, a refit of the belief (Laplace) and of an ensemble (randomised optima) after every batch of labels,
regret of the policy that follows the mean, regret of the duels. Leaves out: selectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.kind import Selector, require
from assay_rm_training.calibration.measures import sigmoid
from assay_serving.engines.heads import Posterior

Floats = npt.NDArray[np.float64]
Responses = Callable[[np.random.Generator, int], Floats]  #: features [prompts, group, H] of that many prompts
SCALE = 2.0  #: standard deviation of the true weights, and of what an earlier reward has wrong
MEMBERS = 8


@dataclass(frozen=True)
class Bandit:
    """`weights` [H] of the true reward; `prior` [H], of the reward before any label; `other` [H], of a second reward;
    `tested`: prompts that the policy is measured on."""

    weights: Floats
    responses: Responses
    prior: Floats
    other: Floats | None = None
    tested: int = 100


def tabular(seed: int, actions: int = 12) -> Bandit:
    """Every prompt has the same responses, whose rewards have nothing in common."""
    weights = SCALE * np.random.default_rng([seed, 0]).standard_normal(actions)
    return Bandit(weights, lambda _, prompts: np.tile(np.eye(actions), (prompts, 1, 1)), np.zeros(actions), tested=1)


def linear(seed: int, *, copies: float = 0.5, misjudged: bool = False, size: int = 8, group: int = 6) -> Bandit:
    """Features vary by directions of falling deviation; a share of `copies` hardly differ from the first of their
    group. `misjudged`: two rewards are there before any label, each with errors of its own."""
    rng = np.random.default_rng([seed, 0])
    deviation = np.geomspace(1, 0.2, size)

    def responses(draws: np.random.Generator, prompts: int) -> Floats:
        features = draws.standard_normal((prompts, group, size)) * deviation
        near = features[:, :1] + 0.05 * features
        return np.where(draws.random((prompts, group, 1)) < copies, near, features)

    weights, first_error, second_error = SCALE * rng.standard_normal((3, size))
    if misjudged:
        return Bandit(weights, responses, weights + first_error, weights + second_error)
    return Bandit(weights, responses, np.zeros(size))


class Fit:
    """The Laplace posterior, and k members: optima of bootstrapped losses, each about its own draw of the prior, a
    normal of deviation SCALE. Refitted with every batch of labels from where they were."""

    def __init__(self, prior: Floats, members: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.towards = prior + np.concatenate(
            [np.zeros((1, len(prior))), SCALE * rng.standard_normal((members, len(prior)))]
        )
        self.heads = self.towards.copy()  #: [1 + k, H], first the optimum of the labels as they are
        self.differences: Floats = np.zeros((0, len(prior)))
        self.labels: Floats = np.zeros(0)
        self.weights: Floats = np.zeros((1 + members, 0))
        self.add(self.differences, self.labels)

    def add(self, differences: Floats, labels: Floats) -> None:
        """[n, H] and [n], 1 where the first was preferred."""
        shares = self.rng.exponential(size=(len(self.heads) - 1, len(labels)))
        self.weights = np.concatenate([self.weights, np.concatenate([np.ones((1, len(labels))), shares])], axis=1)
        self.differences = d = np.concatenate([self.differences, differences])
        self.labels = np.concatenate([self.labels, labels])
        precision = 1 / SCALE**2
        for _ in range(60):
            p = sigmoid(self.heads @ d.T)
            slope = (self.weights * (p - self.labels)) @ d + precision * (self.heads - self.towards)
            curved = d * (self.weights * p * (1 - p))[..., None]
            hessian = curved.transpose(0, 2, 1) @ d + precision * np.eye(d.shape[1])
            step = np.linalg.solve(hessian, slope[..., None])[..., 0]
            reach = np.abs(step @ d.T).max(axis=1, initial=1.0)  # full steps of Newton can overshoot for ever
            self.heads = self.heads - step / reach[:, None]
            if np.abs(step).max() < 1e-3:
                break
        self.posterior = Posterior(self.heads[0], np.linalg.inv(np.linalg.cholesky(hessian[0])).T)


@dataclass(frozen=True)
class Outcome:
    """By step: `policy`, mean regret on other prompts of the response with the highest mean, after the step's labels;
    `duels`, mean regret of the two responses that were compared."""

    policy: Floats
    duels: Floats


def play(bandit: Bandit, selector: Selector, seed: int, *, steps: int, prompts: int, labels: int) -> Outcome:
    """Each step offers all pairs of `prompts` groups, buys `labels` of them, and refits. Selectors that are played with
    the same seed see the same prompts, and the same pair of a step has the same label."""
    offering, choosing, fitting, testing = (np.random.default_rng([seed, stream]) for stream in range(1, 5))
    tested = bandit.responses(testing, bandit.tested)
    truth = tested @ bandit.weights
    group, size = tested.shape[1:]
    pairs = np.array([(p + a, p + b) for p in range(0, prompts * group, group) for b in range(group) for a in range(b)])
    first, second = pairs.T
    fit = Fit(bandit.prior, MEMBERS if "members" in selector.needs else 0, fitting)
    policy, duels = np.zeros(steps), np.zeros(steps)
    for step in range(steps):
        features = bandit.responses(offering, prompts).reshape(-1, size)
        chance = offering.random(len(pairs))
        offered = Candidates(
            first,
            second,
            first // group,
            reward=features @ fit.posterior.mean,
            members=features @ fit.heads[1:].T,
            other=None if bandit.other is None else features @ bandit.other,
            features=features,
            logp=np.zeros(len(features)),
            logp_ref=np.zeros(len(features)),
            posterior=fit.posterior,
        )
        require(selector, offered)
        asked = [pick.pair for pick in selector.choose(offered, labels, choosing)]
        a, b, reward = first[asked], second[asked], features @ bandit.weights
        best = reward.reshape(prompts, group).max(axis=1)[a // group]
        duels[step] = (best - (reward[a] + reward[b]) / 2).mean()
        fit.add(features[a] - features[b], (chance[asked] < sigmoid(reward[a] - reward[b])).astype(np.float64))
        preferred = (tested @ fit.posterior.mean).argmax(axis=1)
        policy[step] = (truth.max(axis=1) - truth[np.arange(len(truth)), preferred]).mean()
    return Outcome(policy, duels)
