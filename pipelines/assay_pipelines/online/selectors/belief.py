"""What is believed of the rewards of candidates: means, and deviations that any two responses can be compared by.

Covers: one form for the posterior of a linear head and for the members of an ensemble, draws from it. Leaves out:
fitting either.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from assay_pipelines.online.selectors.candidates import Candidates, Floats, Ints

Source: TypeAlias = Literal["posterior", "members"]


def needs_of(source: Source) -> frozenset[str]:
    return frozenset({"posterior", "features"} if source == "posterior" else {"members"})


@dataclass(frozen=True)
class Belief:
    """Rewards of r responses: `mean` [r], and `deviations` [r, m] with covariance `deviations @ deviations.T`.

    Of a posterior N(mean, F F^T) of a head: features @ mean and features @ F. Of k members: their mean, and their
    differences from it over sqrt(k). A response without numbers has NaN.
    """

    mean: Floats
    deviations: Floats
    source: Source

    def draw(self, rows: Ints, rng: np.random.Generator) -> Floats:
        """Rewards of the responses `rows` by one head drawn from the posterior, or by one of the members."""
        size = self.deviations.shape[1]
        if self.source == "posterior":
            towards = rng.standard_normal(size)
        else:
            towards = np.sqrt(size) * np.eye(size)[rng.integers(size)]
        return np.asarray(self.mean[rows] + self.deviations[rows] @ towards)


def belief_of(candidates: Candidates, source: Source) -> Belief:
    if source == "posterior":
        assert candidates.posterior is not None
        assert candidates.features is not None
        head = candidates.posterior
        return Belief(candidates.features @ head.mean, candidates.features @ head.factor, source)
    assert candidates.members is not None
    mean = candidates.members.mean(axis=1)
    return Belief(mean, (candidates.members - mean[:, None]) / np.sqrt(candidates.members.shape[1]), source)


def margins(candidates: Candidates, belief: Belief) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each pair's difference of rewards [n]."""
    spread = np.sqrt(np.square(candidates.difference(belief.deviations)).sum(axis=1))
    return candidates.difference(belief.mean), np.asarray(spread)
