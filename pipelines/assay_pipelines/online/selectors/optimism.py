"""Optimism: the response that could be the best, given what is known, against one that is well known.

Source: MEX (Liu et al., arXiv 2305.18258, its rule from a secondary source): f = argsup V_f - eta L_f(data), the
hypothesis of the highest value less its misfit. For a linear reward and L = (w - mean)^T S^-1 (w - mean) / 2, the
misfit about a posterior, the supremum over w of w . x - eta L is mean . x + x^T S x / (2 eta): a margin is worth its
mean and its variance / (2 eta). XPO (Xie et al., arXiv 2405.21046; its loss as in TRL is DPO's + alpha log pi(y), y
drawn from the reference) is the same rule for the KL-regularised value: with pi = ref exp(r / beta) / Z,
-beta log pi(y) is V_r - r(y) up to a constant. Its comparator is y.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt

from assay.settings import CheckedSettings, Help
from assay_pipelines.online.selectors.belief import Source, belief_of, margins, needs_of
from assay_pipelines.online.selectors.candidates import Candidates, Floats, Ints
from assay_pipelines.online.selectors.kind import Pick
from assay_pipelines.online.selectors.turns import by_turns


@dataclass(frozen=True)
class OptimisticChoice(CheckedSettings):
    """Of each prompt, the comparator with the response of the highest optimistic margin over it; the highest margin
    first; then a second pair of each prompt."""

    by: Annotated[Source, Help("Variances by the posterior, or by the members.")] = "posterior"
    eta: Annotated[float, Gt(0), Help("Weight of the misfit: variance / (2 eta) is added to a margin.")] = 1.0
    comparator: Annotated[
        Literal["best", "reference"],
        Help("best: the highest mean. reference: drawn by probability under the reference over that under the policy."),
    ] = "best"

    @property
    def needs(self) -> frozenset[str]:
        return needs_of(self.by) | ({"logp", "logp_ref"} if self.comparator == "reference" else set())

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        belief = belief_of(candidates, self.by)
        margin, spread = margins(candidates, belief)
        bonus = np.square(spread) / (2 * self.eta)
        rank = belief.mean
        if self.comparator == "reference":
            assert candidates.logp is not None
            assert candidates.logp_ref is not None
            # the largest log-weight plus Gumbel noise is a draw by weight
            rank = candidates.logp_ref - candidates.logp + rng.gumbel(size=len(candidates.reward))

        def pick(pairs: Ints) -> Pick:
            pair, value = _optimistic(candidates, pairs, margin, bonus, rank)
            return Pick(pair, {"value": value, "bonus": float(bonus[pair])})

        usable = np.isfinite(margin + bonus + candidates.difference(rank))
        return by_turns(candidates, usable, count, pick, "value")


def _optimistic(candidates: Candidates, pairs: Ints, margin: Floats, bonus: Floats, rank: Floats) -> tuple[int, float]:
    """Of one prompt's pairs: the response of the highest `rank`, with the partner of the highest margin over it."""
    first, second = candidates.first[pairs], candidates.second[pairs]
    rows = np.concatenate([first, second])
    comparator = rows[np.argmax(rank[rows])]
    value = np.where(second == comparator, margin[pairs], -margin[pairs]) + bonus[pairs]
    value[(first != comparator) & (second != comparator)] = -np.inf
    best = int(np.argmax(value))
    return int(pairs[best]), float(value[best])
