"""Groups of annotators who want different things: a mixture of Bradley-Terry heads on frozen features, by EM.

Source: "MaxMin-RLHF: Towards Equitable Alignment of Large Language Models with Diverse Human Preferences", arXiv
2402.08925 (notes; its repository has no EM to read, the alternation is recalled). E step: an annotator belongs to the
head under which all of their votes together are likeliest (hard), or to every head by its share and that likelihood
(soft, a mixture's posterior). M step: each head is the optimum of the votes weighted by that.

Covers: the fit with random restarts, the penalty chosen on held-out pairs, whether groups predict them better than one
head does. Leaves out: features (`hidden_states`), saving (`runs/groups.py`), the policy's max-min
(`assay_policy_training.plugins.compositions.maxmin`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt
from scipy.special import logsumexp

from assay.errors import BadInputError
from assay.settings import CheckedSettings
from assay_rm_training.methods.probe import L2_PATH, fit_head

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
ROUNDS, TOLERANCE = 60, 1e-6


@dataclass(frozen=True)
class GroupsConfig(CheckedSettings):
    """`l2`: for features of deviation 1, over all votes; None: the one that predicts held-out pairs best."""

    groups: Annotated[int, Ge(2)] = 2
    assignment: Literal["soft", "hard"] = "soft"
    restarts: Annotated[int, Ge(1)] = 8
    l2: Annotated[float | None, Gt(0), Lt(math.inf)] = None
    seed: Annotated[int, Ge(0)] = 0


@dataclass(frozen=True)
class AnnotatorGroups:
    """`heads`: [U, H], the largest group first. `shares`: [U], of the annotators. `belongs`: [A, U], P(group) of each
    annotator. `trace`: the penalised log-likelihood after each round, which never falls."""

    heads: Floats
    shares: Floats
    belongs: Floats
    trace: tuple[float, ...]
    l2: float
    held_out: "HeldOutVotes | None" = field(default=None)


@dataclass(frozen=True)
class HeldOutVotes:
    """Of `votes` on pairs left out of the fit: NLL and accuracy by the heads of each vote's annotator, and by one head
    for all with the penalty that suits it best."""

    votes: int
    nll: float
    accuracy: float
    single_nll: float
    single_accuracy: float


def fit_groups(
    d: Floats, who: Ints, config: GroupsConfig, pairs: Sequence[int] | Ints | None = None
) -> AnnotatorGroups:
    """Of votes d = chosen - rejected [N, H] by annotators `who` [N], numbered from 0. `pairs` [N]: what the vote was
    about, of which a fifth is held out to choose the penalty and to compare with one head.

    Raises BadInputError for fewer annotators than groups, and where no start fills every group.
    """
    who = np.asarray(who, dtype=np.int64)
    if d.ndim != 2 or who.shape != (len(d),) or not len(d) or not np.isfinite(d).all():
        raise BadInputError("votes are [N, H], finite, with an annotator each", field="votes")
    if (annotators := len(np.unique(who))) < config.groups:
        raise BadInputError(f"{annotators} annotators cannot be {config.groups} groups", field="groups")
    scale = np.sqrt(np.square(d).mean(axis=0)) + 1e-6
    d = d / scale
    l2, held_out = config.l2, None
    held = np.asarray(pairs) % 5 == 0 if pairs is not None else np.zeros(len(d), dtype=bool)
    if held.any() and not held.all():
        l2, held_out = _choose(d, who, held, config)
    fitted = _best(d, who, config, l2 if l2 is not None else L2_PATH[-1])
    if fitted is None:
        raise BadInputError("one group stays without annotators: these votes show fewer groups", field="groups")
    return AnnotatorGroups(fitted.heads / scale, fitted.shares, fitted.belongs, fitted.trace, fitted.l2, held_out)


def belonging(z: Floats, who: Ints, shares: Floats, *, hard: bool = False) -> tuple[Floats, float]:
    """E step: P(group) [A, U] of each annotator from margins z [N, U] of their votes, and the log-likelihood."""
    likelihood = np.zeros((int(who.max()) + 1, z.shape[1]))
    np.add.at(likelihood, who, -np.logaddexp(0.0, -z))
    if hard:
        best = likelihood.argmax(axis=1)
        return np.eye(z.shape[1])[best], float(likelihood.max(axis=1).sum())
    joint = likelihood + np.log(shares)
    total = logsumexp(joint, axis=1)
    return np.exp(joint - total[:, None]), float(total.sum())


def _best(d: Floats, who: Ints, config: GroupsConfig, l2: float) -> AnnotatorGroups | None:
    """The likeliest of several starts; None where each leaves a group empty."""
    starts = [_fit(d, who, config, l2, np.random.default_rng([config.seed, n])) for n in range(config.restarts)]
    complete = [fitted for fitted in starts if fitted is not None]
    if not complete:
        return None
    best = max(complete, key=lambda fitted: fitted.trace[-1])
    order = np.argsort(-best.shares, kind="stable")
    return AnnotatorGroups(best.heads[order], best.shares[order], best.belongs[:, order], best.trace, l2)


def _fit(d: Floats, who: Ints, config: GroupsConfig, l2: float, rng: np.random.Generator) -> AnnotatorGroups | None:
    """One start, from a random division of the annotators; None where a group comes to be empty."""
    hard, count = config.assignment == "hard", int(who.max()) + 1
    belongs = np.eye(config.groups)[rng.permutation(count) % config.groups]
    heads, trace = np.zeros((config.groups, d.shape[1])), [-math.inf]
    shares = belongs.mean(axis=0)
    for _ in range(ROUNDS):
        for u in range(config.groups):
            weights = belongs[who, u]
            if (total := float(weights.sum())) < 1.0:
                return None
            # The penalty of all groups has one unit: that of the votes' log-likelihood, of which each head has a part.
            heads[u] = fit_head(d, weights, l2=l2 * len(d) / total, start=heads[u])
        shares = belongs.mean(axis=0)
        belongs, likelihood = belonging(d @ heads.T, who, shares, hard=hard)
        trace.append(likelihood - 0.5 * l2 * len(d) * float(np.square(heads).sum()))
        if trace[-1] - trace[-2] < TOLERANCE * len(d):
            break
    return AnnotatorGroups(heads, shares, belongs, tuple(trace[1:]), l2)


def _choose(
    d: Floats, who: Ints, held: npt.NDArray[np.bool_], config: GroupsConfig
) -> tuple[float | None, HeldOutVotes | None]:
    """The penalty of the best likelihood of the held-out votes, and how they are predicted; None where no penalty fills
    all groups."""
    path = (config.l2,) if config.l2 is not None else L2_PATH
    train, ones = ~held, np.ones(int((~held).sum()))
    tried: dict[float, tuple[float, float]] = {}
    for l2 in path:
        if (fitted := _best(d[train], who[train], config, l2)) is None:
            continue
        belongs = np.tile(fitted.shares, (int(who.max()) + 1, 1))  # of whom no vote was fitted, the shares are known
        fitted_on = np.unique(who[train])
        belongs[fitted_on] = fitted.belongs[fitted_on]
        tried[l2] = _figures((belongs[who[held]] / (1 + np.exp(-d[held] @ fitted.heads.T))).sum(axis=1))
    if not tried:
        return config.l2, None
    single = [1 / (1 + np.exp(-d[held] @ fit_head(d[train], ones, l2=l2))) for l2 in L2_PATH]
    best, one = min(tried, key=lambda l2: tried[l2][0]), min(map(_figures, single))
    return best, HeldOutVotes(int(held.sum()), *tried[best], *one)


def _figures(p: Floats) -> tuple[float, float]:
    """NLL and accuracy of votes to which these probabilities were given."""
    return float(-np.log(np.maximum(p, 1e-300)).mean()), float((p > 0.5).mean())
