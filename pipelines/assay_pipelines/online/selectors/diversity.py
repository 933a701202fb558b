"""Diversity on top of any selector: the prompts take turns, and no pair asks what another one has asked already.

Source: maximal marginal relevance (Carbonell and Goldstein 1998, recalled) over the differences x of features. Two are
alike by exp(-d^2 / 2 s^2), with d the smaller of |x - y| and |x + y|, since a pair is its swap, and s^2 the mean of
|x|^2; a pair without a difference tells nothing, so 0 counts as asked from the beginning. With weight 0 this is greedy
k-center (Sener and Savarese, arXiv 1708.00489, recalled) from there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le

from assay.settings import Help, check_settings
from assay_pipelines.online.selectors.candidates import Candidates, Floats
from assay_pipelines.online.selectors.kind import SELECTORS, Pick, Selector


@dataclass(frozen=True)
class DiversePairs:
    """Of the first `pool` times as many pairs of another selector: one of each prompt before a second of any, each the
    one that has the most of weight x (1 - its rank / their number) - (1 - weight) x its similarity to those before."""

    selector: Annotated[str, Help("The selector whose order is followed.")] = "disagreement"
    settings: Annotated[Mapping[str, Any], Help("Its settings.")] = field(default_factory=dict)
    weight: Annotated[float, Ge(0), Le(1), Help("Of the rank. 1: prompts take turns, and features are not read.")] = 0.5
    pool: Annotated[int, Ge(1), Help("Pairs of the selector considered for each that is chosen.")] = 4
    ranking: Selector = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_settings(self)
        object.__setattr__(self, "ranking", SELECTORS.create(self.selector, self.settings))

    @property
    def needs(self) -> frozenset[str]:
        return self.ranking.needs | ({"features"} if self.weight < 1 else set())

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        x: Floats = np.zeros((len(candidates), 1))
        if self.weight < 1:
            assert candidates.features is not None
            x = candidates.difference(candidates.features)
        usable = np.flatnonzero(np.isfinite(x).all(axis=1))
        considered = replace(
            candidates,
            first=candidates.first[usable],
            second=candidates.second[usable],
            prompt=candidates.prompt[usable],
        )
        order = self.ranking.choose(considered, self.pool * max(count, 0), rng)
        if not order:
            return []
        pairs = usable[[pick.pair for pick in order]]
        x, prompt = x[pairs], candidates.prompt[pairs]
        squares = np.square(x).sum(axis=1)
        scale = 2 * max(float(squares.mean()), 1e-12)
        similarity, turn = np.exp(-squares / scale), np.zeros(len(pairs))
        relevance = 1 - np.arange(len(pairs)) / len(pairs)
        picks: list[Pick] = []
        while len(picks) < min(count, len(pairs)):
            worth = self.weight * relevance - (1 - self.weight) * similarity
            best = int(np.lexsort((-worth, turn))[0])
            alike = {"similarity": float(similarity[best])} if self.weight < 1 else {}
            picks.append(Pick(int(pairs[best]), {**order[best].why, **alike}))
            distance = np.maximum(squares + squares[best] - 2 * np.abs(x @ x[best]), 0)
            similarity = np.maximum(similarity, np.exp(-distance / scale))
            turn[prompt == prompt[best]] += 1
            turn[best] = np.inf
        return picks
