"""Several linear heads on one frozen backbone, and the normal belief of what their weights are.

Covers: rewards of all heads from hidden states, the exact variance that the belief gives, their scale. Leaves out:
fitting (`assay_rm_training.methods.head_ensemble`), scoring with them (`head_ensemble`).
"""

from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Posterior:
    """Normal belief of a head's weights: `mean` [H], and `factor` [H, m] with covariance `factor @ factor.T`."""

    mean: Floats
    factor: Floats

    def variance(self, features: Floats) -> Floats:
        """Of rewards [n] of hidden states [n, H]; of differences of rewards for differences of states."""
        return np.asarray(np.square(features @ self.factor).sum(axis=1))


@dataclass(frozen=True)
class Heads:
    """k heads: the reward of member j for a hidden state x is heads[j] . (x - centre).

    A comparison does not tell the level of a reward. `centre` [H], the mean hidden state of the responses fitted on,
    gives all members mean 0 there, so that neither their minimum nor their spread is about their levels.
    """

    heads: Floats  #: [k, H]
    centre: Floats  #: [H]
    posterior: Posterior

    @property
    def mean(self) -> Floats:
        """[H]: the one head that fits all pairs best, not the members' mean."""
        return self.posterior.mean

    def rewards(self, features: npt.NDArray[np.floating[Any]]) -> Floats:
        """Of every member [n, k] for hidden states [n, H]."""
        return np.asarray((features.astype(np.float64) - self.centre) @ self.heads.T)

    def spread_by(self, factor: float) -> Self:
        """The same means, and deviations (of the members about theirs, of the belief) `factor` times as large."""
        middle = self.heads.mean(axis=0)
        wider = replace(self.posterior, factor=self.posterior.factor * factor)
        return replace(self, heads=middle + factor * (self.heads - middle), posterior=wider)
