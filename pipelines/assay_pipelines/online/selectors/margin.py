"""Pairs whose two rewards are nearest to each other (uncertainty sampling)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from assay_pipelines.online.selectors.candidates import Candidates, most_urgent
from assay_pipelines.online.selectors.kind import Pick


@dataclass(frozen=True)
class SmallestMargin:
    """The least difference of the reward first: the label that a Bradley-Terry model is least sure of."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        margin = np.abs(candidates.difference(candidates.reward))
        return [Pick(pair, {"margin": float(margin[pair])}) for pair in most_urgent(-margin, count, rng)]
