"""Diversity on top of any selector: the prompts take turns, and no pair asks what another one has asked already.

Source: maximal marginal relevance (Carbonell and Goldstein 1998, recalled) over the differences of features, whose
similarity is |cos|, the same for a pair and its swap. With weight 0 it is greedy k-center (Sener and Savarese, arXiv
1708.00489, recalled) in that similarity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le

from assay.settings import Help, check_settings
from assay_pipelines.online.selectors.candidates import Candidates, Ints
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
        usable: Ints = np.arange(len(candidates))
        directions = np.zeros((len(candidates), 1))
        if self.weight < 1:
            assert candidates.features is not None
            difference = candidates.difference(candidates.features)
            directions = difference / np.maximum(np.linalg.norm(difference, axis=1, keepdims=True), 1e-12)
            usable = np.flatnonzero(np.isfinite(directions).all(axis=1))
        considered = replace(
            candidates,
            first=candidates.first[usable],
            second=candidates.second[usable],
            prompt=candidates.prompt[usable],
        )
        order = self.ranking.choose(considered, self.pool * max(count, 0), rng)
        pairs = usable[[pick.pair for pick in order]] if order else usable[:0]
        relevance = 1 - np.arange(len(pairs)) / max(len(pairs), 1)
        similarity, turn = np.zeros(len(pairs)), np.zeros(len(pairs))
        picks: list[Pick] = []
        while len(picks) < min(count, len(pairs)):
            worth = self.weight * relevance - (1 - self.weight) * similarity
            best = int(np.lexsort((-worth, turn))[0])
            picks.append(Pick(int(pairs[best]), {**order[best].why, "similarity": float(similarity[best])}))
            similarity = np.maximum(similarity, np.abs(directions[pairs] @ directions[pairs[best]]))
            turn[candidates.prompt[pairs] == candidates.prompt[pairs[best]]] += 1
            turn[best] = np.inf
        return picks
