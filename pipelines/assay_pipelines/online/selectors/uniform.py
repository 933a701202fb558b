"""Any pair, with equal probability: what every other selector is measured against."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.kind import Pick


@dataclass(frozen=True)
class RandomPairs:
    """Without replacement. Reads no reward, so pairs without one are candidates too."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        pairs = rng.permutation(len(candidates))[: max(count, 0)]
        return [Pick(int(pair), {"probability": len(pairs) / len(candidates)}) for pair in pairs]
